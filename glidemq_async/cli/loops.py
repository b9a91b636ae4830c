"""Running a coroutine as a command does: the faster event loop where it is installed, and a clean Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from glidemq_async.cli.exits import USAGE, CommandError
from glidemq_async.worker.signals import stop_on_signals

if TYPE_CHECKING:
    from glidemq_async.worker import Worker

T = TypeVar("T")


def run_in_loop(work: Coroutine[Any, Any, T], kind: str = "auto") -> T:
    """Run to the end in a uvloop ("uvloop"), in asyncio's own loop ("asyncio"), or in the faster one that is there."""
    try:
        factory = _loop_factory(kind)
    except CommandError:
        work.close()
        raise
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def run_interruptible(work: Coroutine[Any, Any, T]) -> T | None:
    """As `run_in_loop`; SIGINT and SIGTERM cancel the work, which cleans up, and the answer is None."""
    return run_in_loop(_interruptible(work))


async def _interruptible(work: Coroutine[Any, Any, T]) -> T | None:
    task = asyncio.create_task(work)
    interrupted = asyncio.Event()

    def stop() -> None:
        interrupted.set()
        task.cancel()

    with stop_on_signals(stop):
        try:
            return await task
        except asyncio.CancelledError:
            if interrupted.is_set():
                return None
            raise


async def run_until_stdin_ends(worker: Worker[Any, Any]) -> None:
    """Run a worker until SIGTERM, or the end of standard input: that comes however the parent process ends."""
    loop = asyncio.get_running_loop()

    def parent_has_ended() -> None:
        loop.remove_reader(0)
        worker.stop()

    loop.add_reader(0, parent_has_ended)
    await worker.run()


async def until_one(
    goals: Sequence[Coroutine[Any, Any, object]], beside: Sequence[Coroutine[Any, Any, object]]
) -> None:
    """Wait until one of the goals has ended, running the rest beside it; raises what any of them raises.

    What has not ended then is cancelled.
    """
    reaching = {asyncio.create_task(goal) for goal in goals}
    tasks = reaching | {asyncio.create_task(work) for work in beside}
    waiting = tasks
    try:
        while not any(task.done() for task in reaching):
            ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _loop_factory(kind: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if kind == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if kind == "uvloop":
            raise CommandError("--loop uvloop: uvloop is not installed here", USAGE) from None
        return None
    return uvloop.new_event_loop
