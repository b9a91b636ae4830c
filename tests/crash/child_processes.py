"""Children forked from a warm image. A parent without an event loop starts, signals and reaps them.

The parent signals only processes that it started, and only until it has reaped them.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


class Exit(NamedTuple):
    """The end of a child: `status` is its exit code, or minus the number of the signal."""

    pid: int
    status: int
    at: float


class ChildProcesses:
    """The children of one parent. Leaving the block kills the remaining ones."""

    def __init__(self, log: Path) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.alive: set[int] = set()

    def __enter__(self) -> Self:
        # Every child shares the modules that are imported now. A garbage collection in a child would copy them.
        gc.collect()
        gc.freeze()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self.alive:
            os.kill(pid, signal.SIGKILL)
        for pid in tuple(self.alive):
            os.waitpid(pid, 0)
            self.alive.discard(pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        os.close(self._log)
        gc.unfreeze()

    def fork(self, work: Callable[[], None]) -> int:
        """Run `work` in a child. Its exit code is 0 when `work` returns, 1 when it raises."""
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self.alive.add(pid)
            return pid
        status = 1
        try:
            self._settle_in(parent)
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - no code of the parent may run in a child after `work`
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _settle_in(self, parent: int) -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        self.alive.clear()
        os.dup2(self._log, 1)
        os.dup2(self._log, 2)

    def send(self, pid: int, number: signal.Signals) -> bool:
        """Send a signal. Return False if the child has already been reaped."""
        if pid not in self.alive:
            return False
        os.kill(pid, number)
        return True

    def reap(self, patience: float) -> list[Exit]:
        """Return the children that have ended. Waits up to `patience` seconds for one."""
        ended = self._ended()
        if not ended and patience > 0:
            signal.sigtimedwait({signal.SIGCHLD}, patience)
            ended = self._ended()
        return ended

    def _ended(self) -> list[Exit]:
        ended: list[Exit] = []
        for pid in tuple(self.alive):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self.alive.discard(pid)
                ended.append(Exit(pid, os.waitstatus_to_exitcode(status), time.monotonic()))
        return ended

    def wait_for(self, pid: int, patience: float) -> Exit | None:
        """Wait for one child and discard other ends. Return None if it has not ended in time."""
        deadline = time.monotonic() + patience
        while pid in self.alive and (rest := deadline - time.monotonic()) > 0:
            for one in self.reap(rest):
                if one.pid == pid:
                    return one
        return None
