"""What goes on beside a measurement, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager


@contextmanager
def meanwhile(work: Callable[[threading.Event], Coroutine[None, None, None]]) -> Generator[None]:
    """Run a coroutine function in a loop of its own until the block ends, which sets the event that it is given."""
    over = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(work(over)))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
