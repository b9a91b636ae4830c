"""Calls of tasks in a workflow. Each of them is a child of the run's job, and its result is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, cast

from glidemq_async.errors import JobNotFound
from glidemq_async.jobs.journal import Journal
from glidemq_async.jobs.step_recorder import StepCall, executing_step
from glidemq_async.stored.failure import stored_failure
from glidemq_async.workflows.child_waits import End, Known
from glidemq_async.workflows.waiting import Waiting

CALLED: Final = "workflow.call"
"""The step that records the id of a child."""
_SEPARATOR: Final = "\x1f"
_LONG: Final = 100
"""Length in characters from which the id of a run is replaced by a digest in the ids of its children."""


class Children(Protocol):
    """The children of the job of a run, as its app stores them. `call` is a call of a task."""

    async def add(self, calls: Sequence[tuple[Any, str]]) -> None:
        """Add these children to the job, each with its id. A child that the job already has is not added again."""
        ...

    async def known(self) -> Known:
        """Return the children that the job has by their ids: how they ended, None while they have not.

        The number is how many ends the server has counted.
        """
        ...

    async def end_of(self, call: Any, child_id: str) -> End:
        """Return how a child ends, when it has ended. Raises JobNotFound if its record has been removed."""
        ...


class _Addition(NamedTuple):
    call: Any
    child_id: str
    done: asyncio.Future[None]


# The id of a child is recorded before the child is added, and the plan of the job's children refuses an id that it has.
# So a run that dies between any two steps adds no child twice. A run that was requeued by hand gives its open calls new
# children, because the end of the run before has cancelled the old ones.
class TaskCalls:
    """The calls of tasks in one run."""

    def __init__(self, journal: Journal, waiting: Waiting) -> None:
        self._journal = journal
        self._waiting = waiting
        self._known: dict[str, End | None] | None = None
        self._reading = asyncio.Lock()
        self._additions: list[_Addition] = []
        self._adding: asyncio.Task[None] | None = None

    async def result(self, call: Any, children: Children) -> Any:
        """Add a call as a child, and return its result. Only inside of a step. Raises JobFailed."""
        child_id = await self._id_of(executing_step())
        known = await self._known_children(children)
        if child_id not in known:
            await self._add(_Addition(call, child_id, asyncio.get_running_loop().create_future()), children)
            known[child_id] = None
        end = known[child_id]
        if end is None:
            end = await self._waiting.end_of_child(child_id, partial(self._watch, call, child_id, children))
            known[child_id] = end
        if end.reason is not None:
            raise stored_failure(None, end.reason)
        return end.result

    async def _id_of(self, identity: str) -> str:
        journal = self._journal
        key = ".".join(identity.split(_SEPARATOR)[1:])
        if journal.requeued:
            key += f".{journal.requeued}"
        if journal.is_fork:
            key += f".{_digest(journal.job_id)}"

        async def new() -> str:
            job_id = journal.job_id
            return f"{job_id if len(job_id) < _LONG else _digest(job_id)}/{_digest(identity)}.{journal.run}"

        return cast("str", await journal.call(StepCall(CALLED, key=key), new))

    async def _known_children(self, children: Children) -> dict[str, End | None]:
        waits = self._waiting.children
        await waits.caught_up()
        async with self._reading:
            if self._known is None:
                known: dict[str, End | None] = {}
                waits.read = partial(_read, children, known)
                if self._journal.run != 1:  # the first run has no children yet
                    _, waits.known_ends = await waits.read()
                self._known = known
            return self._known

    async def _watch(self, call: Any, child_id: str, children: Children) -> End:
        try:
            return await children.end_of(call, child_id)
        except JobNotFound:
            # Its record was removed when it ended. The plan of the children knows how, and resumes the suspended run.
            return await cast("asyncio.Future[End]", asyncio.get_running_loop().create_future())

    # Calls of the same turn of the event loop share an addition, because a workflow may call thousands of tasks.
    async def _add(self, addition: _Addition, children: Children) -> None:
        self._additions.append(addition)
        if self._adding is None:
            self._adding = asyncio.create_task(self._add_waiting(children))
        await addition.done

    async def _add_waiting(self, children: Children) -> None:
        await asyncio.sleep(0)
        additions, self._additions, self._adding = self._additions, [], None
        await _store(additions, children)


async def _read(children: Children, known: dict[str, End | None]) -> Known:
    """Read the children of a job, and add what is new to `known`."""
    found, ends = await children.known()
    # The run may know an end that has not arrived in the plan of the children yet.
    known.update((child, end) for child, end in found.items() if end is not None or child not in known)
    return found, ends


async def _store(additions: Sequence[_Addition], children: Children) -> None:
    try:
        await children.add([(one.call, one.child_id) for one in additions])
        error = None
    except Exception as raised:  # noqa: BLE001 - the callers raise it
        error = raised
    if error is not None and len(additions) > 1:
        # One of the calls may be wrong. The others must not fail with it.
        for one in additions:
            await _store([one], children)
        return
    for one in additions:
        if not one.done.done():
            one.done.set_result(None) if error is None else one.done.set_exception(error)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()
