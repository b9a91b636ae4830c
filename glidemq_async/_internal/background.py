"""The base class of services that run in the background between `start` and `close`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Background(ABC):
    """A service with `start` and `close`; `async with` calls both."""

    @abstractmethod
    async def start(self) -> None:
        """Start in the background."""

    @abstractmethod
    async def close(self) -> None:
        """Stop. Idempotent."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
