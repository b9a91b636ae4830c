"""The checks after each test find what a test leaves behind."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading

from tests.support.leak_check import late_errors


def leave_garbage() -> None:
    """Leave a coroutine that was never awaited and an open socket in a cycle, so that no reference count ends them."""
    cycle: list[object] = [asyncio.sleep(0), socket.socket()]
    cycle.append(cycle)


def fail() -> None:
    raise ValueError("late")


def test_late_errors_are_found_in_the_test_that_caused_them() -> None:
    hooks = sys.unraisablehook, threading.excepthook
    with late_errors() as errors:
        leave_garbage()
        assert not errors
        gc.collect(1)
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    assert (sys.unraisablehook, threading.excepthook) == hooks
    found = "".join(errors)
    assert len(errors) == 3
    assert "coroutine 'sleep' was never awaited" in found
    assert "unclosed <socket.socket" in found
    assert "ValueError('late')" in found
