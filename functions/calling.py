"""What every caller of a function needs: lanes of numbered calls, replies as plain Python, one base class.

A call that changes something happens once however often it is sent; functions/request.lua tells how.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol, TypeAlias, cast

Arg: TypeAlias = bytes | str | int
Wait: TypeAlias = Literal["default", "replicated", "fsync"]
Record: TypeAlias = dict[bytes, bytes]

_MOST_IDS = 500


class FunctionStore(Protocol):
    """The part of a storage that is needed to call functions."""

    async def call(
        self,
        function: str,
        key: str,
        args: Sequence[Arg],
        *,
        readonly: bool = False,
        timeout: float | None = None,
        wait: Wait = "default",
    ) -> object:
        """Call a function of the library; see `Storage.call`."""
        ...


class Lane:
    """A numbered sequence of calls of which at most one is in flight; what makes a repeated call recognisable."""

    __slots__ = ("name", "number")

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0

    def next(self) -> int:
        """Return the number of the next call."""
        self.number += 1
        return self.number


class Lanes:
    """The lanes of one client: as many as calls were ever in flight at once."""

    def __init__(self) -> None:
        self._client = uuid.uuid4().hex
        self._count = 0
        self._free: list[Lane] = []

    def acquire(self) -> Lane:
        """Return a lane with no call in flight; give it back with `release`."""
        if self._free:
            return self._free.pop()
        self._count += 1
        return Lane(f"{self._client}.{self._count}")

    def release(self, lane: Lane) -> None:
        """Give a lane back after its call was answered. A lane whose call was cut off must not come back."""
        self._free.append(lane)


def text(value: object) -> str:
    """Return a reply as text."""
    return cast("bytes", value).decode()


def texts(values: object) -> list[str]:
    """Return a reply that is an array of texts."""
    return [item.decode() for item in cast("list[bytes]", values)]


def record(flat: object) -> Record:
    """Return a flat reply of fields and values as a record."""
    items = cast("list[bytes]", flat)
    return dict(zip(items[::2], items[1::2], strict=True))


def counts(flat: object) -> dict[str, int]:
    """Return a flat reply of names and whole numbers."""
    items = cast("list[object]", flat)
    return {text(items[i]): cast("int", items[i + 1]) for i in range(0, len(items), 2)}


class Caller:
    """The functions of one queue; the methods come from its subclasses."""

    def __init__(self, storage: FunctionStore, base: str, lanes: Lanes | None = None) -> None:
        self._storage = storage
        self._base = base
        self._lanes = lanes or Lanes()
        self.consumer = ""
        """The worker that makes the calls, "" for clients that run no jobs."""

    @property
    def base(self) -> str:
        """The queue's base key."""
        return self._base

    async def once(
        self, function: str, args: Sequence[Arg], *, timeout: float | None = None, wait: Wait = "default"
    ) -> object:
        """Make a call that happens once however often it is sent."""
        lane = self._lanes.acquire()
        reply = await self._storage.call(
            function, self._base, [lane.name, lane.next(), *args], timeout=timeout, wait=wait
        )
        self._lanes.release(lane)
        return reply

    async def read(self, function: str, args: Sequence[Arg] = ()) -> object:
        """Make a call that changes nothing."""
        return await self._storage.call(function, self._base, args, readonly=True)

    async def pieces(self, function: str, ids: Sequence[str]) -> AsyncIterator[list[tuple[str, object]]]:
        """Read something about each id. The server answers fewer at once when they are large."""
        at, step = 0, _MOST_IDS
        while at < len(ids):
            asked = ids[at : at + step]
            rows = cast("list[object]", await self.read(function, list(asked)))
            yield list(zip(asked, rows, strict=False))
            at += len(rows)
            # A request that names many more ids than are answered is sent in vain.
            step = min(_MOST_IDS, 2 * len(rows))

    async def read_all(self, function: str, ids: Sequence[str]) -> list[Record]:
        """Return the flat record of each id that a function answers, {} where there is none."""
        return [record(flat) async for piece in self.pieces(function, ids) for _, flat in piece]
