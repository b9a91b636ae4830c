"""Typed calls of the functions for watchers of jobs and for replies: `watching.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from glidemq_async.functions.calling import Arg, Calls


class UpdateRead(NamedTuple):
    """The reply for one watched job: its `state`, "" for an unknown id; `watching.lua` describes the rest."""

    state: str
    is_open: bool
    name: str
    progress: bytes
    trimmed_lines: int
    total_lines: int
    lines: Sequence[str]


class ReplyRead(NamedTuple):
    """The reply of a job's run to a signal as a recorded step, b"" without one. See `watching.lua`."""

    state: str
    is_open: bool
    step: bytes


class WatchingCalls(Calls):
    """Calls of the functions in `watching.lua`."""

    __slots__ = ()

    async def read(self, wanted: Sequence[tuple[str, int]]) -> list[UpdateRead]:
        """Read the state, the progress and the log lines after the known ones of these jobs, at least of the first one.

        `wanted` has the id of each job, and the number of log lines that the caller knows.
        """
        args: list[Arg] = [arg for one in wanted for arg in one]
        return [_update(*one) for one in cast("list[list[Any]]", await self._caller.read("readUpdates", args))]

    async def read_replies(self, wanted: Sequence[tuple[str, str]]) -> list[ReplyRead]:
        """Read recorded steps by job and identity, at least the first one."""
        args: list[Arg] = [arg for one in wanted for arg in one]
        rows = cast("list[tuple[bytes, int, bytes]]", await self._caller.read("readReplies", args))
        return [ReplyRead(state.decode(), bool(is_open), step) for state, is_open, step in rows]


def _update(
    state: bytes, is_open: int, name: bytes, progress: bytes, trimmed: int, total: int, lines: list[bytes]
) -> UpdateRead:
    shown = [line.decode(errors="replace") for line in lines]
    return UpdateRead(state.decode(), bool(is_open), name.decode(errors="replace"), progress, trimmed, total, shown)
