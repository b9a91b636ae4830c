"""The base class of objects that connect when they are entered and close when they are left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Connectable(ABC):
    """An object with `connect` and `close`; `async with` calls both."""

    @abstractmethod
    async def connect(self) -> None:
        """Connect. Idempotent."""

    @abstractmethod
    async def close(self) -> None:
        """Close. Idempotent."""

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
