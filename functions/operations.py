"""Typed calls of the functions for the records of bulk operations: `operations.lua`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from glidemq_async.functions.calling import Arg, Calls, Record, record, text, texts


class Advance(NamedTuple):
    """A handled step of an operation: its first position, the position after it, and its results.

    `chunk` is the position where the chunk with the following job begins. `done` is the number of changed jobs.
    `watched` replaces the stored list of watched jobs; b"" leaves it as it is.
    """

    position: int
    following: int
    chunk: int
    done: int
    refused: Mapping[str, int]
    watched: bytes = b""


class OperationCalls(Calls):
    """Calls of the functions in `operations.lua`, with the base key of the queue `system/ops`."""

    __slots__ = ()

    async def add_targets(self, operation: str, start: int, packed: bytes) -> None:
        """Store a chunk of the jobs of an operation, whose first one has this position."""
        await self._caller.call("addTargets", [operation, start, packed])

    async def create(self, operation: str, document: bytes, ticket: str, size: int) -> int:
        """Store a previewed operation. Return the instant in ms."""
        return cast("int", await self._caller.once("createOperation", [operation, document, ticket, size]))

    async def start(self, operation: str, ticket: str, settings: bytes, name: str, data: bytes, audit: bytes) -> str:
        """Start an operation. Return the status."""
        return text(await self._caller.once("startOperation", [operation, ticket, settings, name, data, audit]))

    async def advance(self, operation: str, step: Advance) -> tuple[str, int]:
        """Note a handled step. Return the state and the position of the operation."""
        args: list[Arg] = [operation, step.position, step.following, step.chunk, step.done, step.watched]
        for reason, count in step.refused.items():
            args += [reason, count]
        state, position = cast("tuple[bytes, int]", await self._caller.call("advanceOperation", args))
        return text(state), position

    async def end(self, operation: str, state: str, reason: str, audit: bytes | None = None) -> str:
        """Cancel or stop an operation. Return the status."""
        args: list[Arg] = [operation, state, reason, *([] if audit is None else [audit])]
        return text(await self._caller.once("endOperation", args))

    async def get_targets(self, operation: str, start: int) -> bytes:
        """Return a chunk of jobs, b"" if it does not exist."""
        return cast("bytes", await self._caller.read("getTargets", [operation, start]))

    async def get_watched(self, operation: str) -> bytes:
        """Return the stored list of watched jobs, b"" if there is none."""
        return cast("bytes", await self._caller.read("getTargets", [operation, "watched"]))

    async def get(self, operations: Sequence[str]) -> list[Record]:
        """Return the record of each operation, {} for an unknown one."""
        found = cast("list[object]", await self._caller.read("getOperations", list(operations)))
        return [record(flat) for flat in found]

    async def list_ids(self) -> list[str]:
        """Return the ids of the newest 100 operations, the newest first."""
        return texts(await self._caller.read("listOperations"))
