"""Running the coroutine of a command, in uvloop if it is installed, with a clean end at Ctrl-C."""

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
    """Run a coroutine in uvloop ("uvloop"), in asyncio's loop ("asyncio"), or in uvloop if it is installed."""
    try:
        factory = _loop_factory(kind)
    except CommandError:
        work.close()
        raise
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def run_interruptible(work: Coroutine[Any, Any, T]) -> T | None:
    """Run as `run_in_loop` does. SIGINT and SIGTERM cancel the work, and the result is then None."""
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
    """Run a worker until SIGTERM or the end of standard input, which follows every end of the parent process."""
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
            raise CommandError(
                "--loop uvloop: uvloop is not installed; install it or use --loop asyncio", USAGE
            ) from None
        return None
    return uvloop.new_event_loop
