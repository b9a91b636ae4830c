"""A result that the test processes of a run share, because it takes seconds of processor time."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")


def shared_result(folders: pytest.TempPathFactory, name: str, make: Callable[[], T]) -> T:
    """Return the result of `make`, which only the first process calls. The others read it from a file.

    pytest can give the tests of one file to several processes.
    """
    own = folders.getbasetemp()
    common = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with (common / name).open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if stored := file.read():
            found: T = pickle.loads(stored)
            return found
        made = make()
        file.write(pickle.dumps(made))
        return made
