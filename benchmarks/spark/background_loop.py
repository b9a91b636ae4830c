"""An event loop in a second thread, for work that runs during a measurement."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager


@contextmanager
def in_background(work: Callable[[threading.Event], Coroutine[None, None, None]]) -> Generator[None]:
    """Run `work(over)` in the event loop of a second thread. The end of the block sets `over` and joins the thread."""
    over = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(work(over)))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
