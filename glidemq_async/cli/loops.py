"""Running the coroutine of a command, in uvloop if it is installed, with a clean end at Ctrl-C."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from glidemq_async._internal.waits import task_group
from glidemq_async.cli.exits import USAGE, CommandError
from glidemq_async.worker.signals import stop_on_signals

if TYPE_CHECKING:
    from glidemq_async.worker import Worker

T = TypeVar("T")


def run_in_loop(work: Coroutine[Any, Any, T], kind: str = "auto") -> T:
    """Run a coroutine in uvloop ("uvloop"), in asyncio's loop ("asyncio"), or in uvloop if it is installed."""
    try:
        use_uvloop = _use_uvloop(kind)
    except CommandError:
        work.close()
        raise
    # Imported here, because the options of a command are checked before anything else is loaded.
    import anyio

    async def main() -> T:
        return await work

    return anyio.run(main, backend_options={"use_uvloop": use_uvloop})


def run_interruptible(work: Coroutine[Any, Any, T]) -> T | None:
    """Run as `run_in_loop` does. SIGINT and SIGTERM cancel the work, and the result is then None."""
    return run_in_loop(_interruptible(work))


# The work is cancelled as a task and not by a cancel scope of anyio; `waits.task_group` says why.
async def _interruptible(work: Coroutine[Any, Any, T]) -> T | None:
    interrupted = False

    def stop() -> None:
        nonlocal interrupted
        # Noted, because the work may also raise CancelledError for other reasons, which must not look like an
        # interruption.
        interrupted = True
        task.cancel()

    async with task_group() as group:
        task = group.create_task(work)
        with stop_on_signals(stop):
            await asyncio.wait([task])
    return None if interrupted and task.cancelled() else task.result()


async def run_until_stdin_ends(worker: Worker[Any, Any]) -> None:
    """Run a worker until SIGTERM, or until standard input ends, which happens whenever the parent process ends."""
    loop = asyncio.get_running_loop()

    def parent_has_ended() -> None:
        loop.remove_reader(0)
        worker.stop()

    loop.add_reader(0, parent_has_ended)
    await worker.run()


async def until_one(
    goals: Sequence[Coroutine[Any, Any, object]], beside: Sequence[Coroutine[Any, Any, object]]
) -> None:
    """Run all coroutines until one of the goals has ended, then cancel the others. Raises their first error."""
    async with task_group() as group:
        others = [group.create_task(work) for work in beside]
        reaching = [group.create_task(goal) for goal in goals]
        await asyncio.wait(reaching, return_when=asyncio.FIRST_COMPLETED)
        for task in (*others, *reaching):
            task.cancel()


def _use_uvloop(kind: str) -> bool:
    if kind == "asyncio":
        return False
    if importlib.util.find_spec("uvloop") is None:
        if kind == "uvloop":
            raise CommandError("--loop uvloop: uvloop is not installed; install it or use --loop asyncio", USAGE)
        return False
    return True
