"""Resets inherited objects in forked children, because connections, loops and locks belong to the parent."""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class Inherited(Protocol):
    """An object that a forked child must not share with its parent."""

    def _after_fork(self) -> object:
        """Reset the object, and return the parts that belong to the parent. Called in the child, by its only thread."""
        ...


_watched: Final[weakref.WeakSet[Inherited]] = weakref.WeakSet()
_left_behind: Final[list[object]] = []


def watch(thing: Inherited) -> None:
    """Call `thing._after_fork()` in every child that is forked while it exists."""
    _watched.add(thing)


def _start_afresh() -> None:
    _keep_for_ever()
    for thing in list(_watched):
        # Private, because users of a queue must not see it.
        _left_behind.append(thing._after_fork())  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _keep_for_ever() -> None:
    # A transport that is garbage collected removes itself from its loop's epoll. The child shares that epoll with its
    # parent, so the parent would never receive data of that connection again. An extra reference prevents the
    # collection, even at the end of the child.
    if _left_behind:
        return
    try:
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_left_behind))
    except (ImportError, AttributeError):
        return


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
