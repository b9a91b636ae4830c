"""What is inherited by a forked child starts afresh there: connections, loops and locks stay with the parent."""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class Inherited(Protocol):
    """Something that a forked child must not share with its parent."""

    def after_fork(self) -> object:
        """Start afresh; return whatever belongs to the parent. Called in the child, by its only thread."""
        ...


_watched: Final[weakref.WeakSet[Inherited]] = weakref.WeakSet()
_left_behind: Final[list[object]] = []


def watch(thing: Inherited) -> None:
    """Call `thing.after_fork()` in every child that is forked while it exists."""
    _watched.add(thing)


def _start_afresh() -> None:
    _keep_for_ever()
    for thing in list(_watched):
        _left_behind.append(thing.after_fork())


def _keep_for_ever() -> None:
    # A transport that is collected takes itself out of its loop's epoll, which the child shares with its parent: the
    # parent would never hear of that connection again. One reference too many survives even the end of the child.
    if _left_behind:
        return
    try:
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_left_behind))
    except (ImportError, AttributeError):
        return


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
