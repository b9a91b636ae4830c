"""Typed call of the function that adds jobs: `add.lua`."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from itertools import count, groupby
from operator import attrgetter
from typing import Final, NamedTuple, cast

import msgpack

from glidemq_async.functions.calling import Arg, Caller, Calls, Wait, text, texts
from glidemq_async.functions.grouped_adds import PUSHED, AddReply, GroupedAddCalls


class AddRequest(NamedTuple):
    """One job of an `addJob` call. id "" requests a generated id; `JobOptions.pack_extra` makes `extra`."""

    id: str
    name: str
    data: bytes
    opts: bytes
    extra: bytes


_name_and_options = attrgetter("name", "opts")
_LIFO: Final = b"\x81\xa4lifo\xc3"
_PRIORITY: Final = b"\x81\xa8priority"
_NO_PRIORITY: Final = _PRIORITY + b"\x00"
"""The `extra` of jobs whose only option is `lifo`, the beginning of the `extra` of prioritized jobs, and priority 0."""


class AddCalls(Calls):
    """Calls of the functions in `add.lua`."""

    __slots__ = ("_grouped",)

    def __init__(self, caller: Caller, grouped: GroupedAddCalls) -> None:
        super().__init__(caller)
        self._grouped = grouped

    async def jobs(self, jobs: Sequence[AddRequest], wait: Wait = "default") -> AddReply:
        """Add jobs in as many calls as they need. Return one id and outcome per input, in order."""
        if len(jobs) == 1:
            return await self.one(jobs[0], wait)
        now, ids, outcomes = await self.some(jobs, wait)
        while len(ids) < len(jobs):
            reply = await self.some(jobs[len(ids) :], wait)
            now, outcomes = reply.now, outcomes | {len(ids) + at: outcome for at, outcome in reply.outcomes.items()}
            ids += reply.ids
        return AddReply(now, ids, outcomes)

    def one(self, job: AddRequest, wait: Wait) -> Awaitable[AddReply]:
        """Add one job. A caller waits for it, so a plain job does not take the steps that several jobs need."""
        if not (job.id or job.extra):
            return self._grouped.one(job.name, job.opts, job.data, wait)
        if job.id or _forms_group(job.extra):
            return self.some([job], wait)
        return self._one_with_extra(job, wait)

    async def _one_with_extra(self, job: AddRequest, wait: Wait) -> AddReply:
        grouped, incarnation = self._grouped, self._caller.incarnation
        args = (1, *job, incarnation) if job.opts else (incarnation, job.name, job.data, job.extra)
        reply = await self._caller.once("addJob", args, wait=wait, messages_first=grouped.has_pushed)
        if isinstance(reply, bytes):
            grouped.has_pushed = True
            instant, _, id_ = reply.partition(b" ")
            return AddReply(int(instant), [id_.decode()], {})
        now, first, listed, outcomes, _ = cast("list[object]", reply)
        grouped.has_pushed = listed == PUSHED
        if outcomes or listed:
            return _with_outcomes([job], now, first, listed, outcomes)
        return AddReply(cast("int", now), [text(first)], {})

    async def some(self, jobs: Sequence[AddRequest], wait: Wait = "default") -> AddReply:
        """Add the first of these jobs in one call, as many as the server adds before it serves other clients."""
        if all(not job.id and not job.extra for job in jobs):
            return await self._grouped.plain(_groups(jobs), wait)
        if (groups := _groups_with_extra(jobs)) is not None:
            return await self._grouped.of_kinds(groups, wait)
        args: list[Arg] = [len(jobs)]
        for job in jobs:
            args += job
        args.append(self._caller.incarnation)
        now, first, listed, outcomes, added = cast("list[object]", await self._caller.once("addJob", args, wait=wait))
        done = jobs if added == len(jobs) else jobs[: cast("int", added)]
        return _with_outcomes(done, now, first, listed, outcomes)


def _with_outcomes(
    jobs: Sequence[AddRequest], now: object, first: object, listed: object, outcomes: object
) -> AddReply:
    """Return the reply of `addJob` for the jobs that it has considered."""
    generated = _generated_ids(text(first), texts(listed))
    # The server sends only the first of consecutive ids, which saves 500 strings in the reply to a full call. Jobs that
    # were not added have used an id as well, so the numbering stays right, and their id is replaced below.
    ids = [job.id or next(generated) for job in jobs]
    flat = cast("list[object]", outcomes)
    statuses: dict[int, str] = {}
    for i in range(0, len(flat), 3):
        position = cast("int", flat[i]) - 1
        statuses[position], ids[position] = text(flat[i + 1]), text(flat[i + 2])
    return AddReply(cast("int", now), ids, statuses)


def _groups(jobs: Sequence[AddRequest]) -> Iterator[Arg]:
    """Yield the arguments for plain jobs: name, options and number of the jobs of a group, then their data."""
    for (name, opts), group in groupby(jobs, key=_name_and_options):
        data = [job.data for job in group]
        yield name
        yield opts
        yield len(data)
        yield from data


def _forms_group(extra: bytes) -> bool:
    """Return whether jobs with this `extra` and generated ids can be added in groups."""
    return not extra or extra[:1] == b"k" or extra == _LIFO or (extra.startswith(_PRIORITY) and extra != _NO_PRIORITY)


def _priorities(jobs: Sequence[AddRequest]) -> dict[bytes, bytes]:
    """Return the priorities by `extra`; none if all jobs have the same one, or if the first job has none."""
    first = jobs[0].extra
    if not first.startswith(_PRIORITY) or all(job.extra == first for job in jobs):
        return {}
    found = {job.extra for job in jobs if job.extra.startswith(_PRIORITY) and job.extra != _NO_PRIORITY}
    return {extra: b"%d" % cast("dict[str, int]", msgpack.unpackb(extra))["priority"] for extra in found}


def _groups_with_extra(jobs: Sequence[AddRequest]) -> list[Arg] | None:
    """Return the arguments for plain, LIFO, prioritized and keyed jobs; None if there is another job.

    A group begins with the name, options, `extra` and number of its jobs. The data of each job follow, after its key if
    it has one, or its priority if the jobs of the call have several.
    """
    args: list[Arg] = []
    last: tuple[str, bytes, bytes] | None = None
    at = size = 0
    priorities = _priorities(jobs)
    # groupby would take three times as long for groups of one job.
    for id_, name, data, opts, extra in jobs:
        lead = extra[1:] if extra[:1] == b"k" else priorities.get(extra)
        kind = (name, opts, extra if lead is None else b"k" if extra[:1] == b"k" else b"p")
        if kind != last:
            if not _forms_group(extra):
                return None
            if last is not None:
                args[at] = size
            args += kind
            at, size, last = len(args), 0, kind
            args.append(0)
        if id_:
            return None
        if lead is not None:
            args.append(lead)
        args.append(data)
        size += 1
    args[at] = size
    return args


def _generated_ids(first: str, listed: list[str]) -> Iterator[str]:
    if listed:
        return iter(listed)
    return map(str, count(int(first))) if first else iter(())
