"""What works in the background between a start and an end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Background(ABC):
    """What is started and closed; `async with` does both."""

    @abstractmethod
    async def start(self) -> None:
        """Start in the background."""

    @abstractmethod
    async def close(self) -> None:
        """End it; idempotent."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
