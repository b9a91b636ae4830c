"""The checks after each test find what a test leaves behind."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys

from tests.support.leak_check import discarding


def leave_garbage() -> None:
    """Leave a coroutine that was never awaited and an open socket in a cycle, so that no reference count ends them."""
    cycle: list[object] = [asyncio.sleep(0), socket.socket()]
    cycle.append(cycle)


def test_errors_of_garbage_are_found_in_the_test_that_left_it() -> None:
    hook = sys.unraisablehook
    with discarding() as errors:
        leave_garbage()
        assert not errors
        gc.collect(1)
    assert sys.unraisablehook is hook
    assert len(errors) == 2
    assert "coroutine 'sleep' was never awaited" in "".join(errors)
    assert "unclosed <socket.socket" in "".join(errors)
