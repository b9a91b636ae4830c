"""The guard: a small process between a worker and its children. It starts them, ends them and reports their ends.

When the worker ends, for any reason, the guard kills everything below it. It adopts and kills every process that a
child leaves behind. It has one thread and runs no user code, so it can be forked safely at any time.
"""

# Why a separate process? A job may ignore SIGTERM, daemonize its own children or leave the process group, and the
# worker may die of SIGKILL, which leaves it no time to clean up. Three layers together leave no process behind:
#
# 1. The control socket. The kernel closes it when the worker dies. `serve` then reads the end of the stream, and `main`
#    kills everything. This works on every platform.
# 2. The death signal (Linux). The guard gets SIGTERM when the thread that started it ends, so `_worker_lives` checks
#    the parent id before it acts on the signal. A child gets SIGKILL when the guard dies, which covers a killed guard.
#    The parent may die before the signal is requested, so die_with_parent compares the parent id afterwards.
# 3. Adoption (Linux). Guard and children are subreapers: an orphan moves to the nearest one above it, not to init. A
#    descendant of a child can therefore move to the guard only when that child is dead. So every process below the
#    guard that it did not start itself is a leftover, and `_kill_strays` may kill it.
#
# Process ids are reused, and a signal to a reused id would kill an unrelated process. An id becomes free when its
# process is reaped. Therefore `_wait_for_any` looks with WNOWAIT, kills the group while the dead process still keeps
# the id, and reaps last; and `_reap` removes the id from the tables before the guard handles another request.

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

from glidemq_async.executors.subprocess import child, frames
from glidemq_async.executors.subprocess.system import adopt_orphans, die_with_parent, own_children

_MOST_DESCRIPTORS: Final = 1_048_576
"""Descriptors up to this number are closed in a child. In practice no process has a higher limit."""
_BROKEN: Final = 70
"""Exit status of a child that ended because of an error in this library (`EX_SOFTWARE`)."""


def main(config: Mapping[str, Any]) -> None:
    """Serve a worker until it is gone. Does not return."""
    adopt_orphans()
    is_late = not die_with_parent(signal.SIGTERM, config["worker"])
    guard = Guard(socket.socket(fileno=config["control"]), config)
    if not is_late:
        guard.serve()
    guard.end_all()
    # Skip the interpreter's shutdown: nothing here needs it.
    os._exit(0)


class Guard:
    """The children of one worker."""

    def __init__(self, control: socket.socket, config: Mapping[str, Any]) -> None:
        self._control = control
        control.set_inheritable(False)
        self._config = config
        self._pids: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._descriptors: list[int] = []
        self._splitter = frames.Splitter()
        self._wake, self._waking = socket.socketpair()
        self._waking.setblocking(False)
        self._wake.setblocking(False)
        # A signal may arrive between the look at the processes and `select`. A handler that sets a flag would then be
        # seen only at the next request. The byte in this socket makes `select` return immediately, whenever the signal
        # came.
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noticed)
        signal.signal(signal.SIGTERM, _noticed)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _load(config["loaded"])
        # The objects that exist now are shared with every child and never change.
        # A collection in a child would write to the header of every inherited object, and the kernel would copy their
        # pages.
        gc.collect()
        gc.freeze()

    def serve(self) -> None:
        """Handle the worker's requests until it closes the channel or dies."""
        self._report("guard", frames.PROTOCOL, os.getpid())
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while self._worker_lives():
                for key, _ in selector.select():
                    if key.fileobj is self._wake:
                        with suppress(BlockingIOError):
                            self._wake.recv(4096)
                        self._reap()
                    elif not self._receive():
                        return

    def _worker_lives(self) -> bool:
        # SIGTERM also arrives when only a thread of the worker ends, or from a service manager. Neither is its end.
        return bool(os.getppid() == self._config["worker"])

    def _receive(self) -> bool:
        """Handle received frames. Return False when the worker is gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 65_536, 32)
        except OSError:
            return False
        # The kernel delivers descriptors with the first byte of the frame that they were sent with, and in the order of
        # the frames. `start` names only their number, so frames must be handled in the same order.
        self._descriptors += descriptors
        if not data:
            return False
        for kind, *values in self._splitter.feed(data):
            if kind == "start":
                self._start(*values)
            elif kind == "signal":
                self._signal(*values)
        return True

    def _report(self, *frame: object) -> None:
        # An error means that the worker is gone. The reading side notices that too.
        with suppress(OSError):
            self._control.sendall(frames.packed(*frame))

    # -- children ---------------------------------------------------------------------------------------------------

    def _start(self, number: int, count: int) -> None:
        """Start a child with the first `count` received descriptors: its channel, and the targets of its output."""
        given, self._descriptors = self._descriptors[:count], self._descriptors[count:]
        me = os.getpid()
        if self._config["permissions"] is not None:
            _look_for_code()
        try:
            pid = os.fork()
        except OSError as error:
            self._report("ended", number, None, f"could not be started ({error})")
        else:
            if pid == 0:
                self._become_child(me, given)
            self._pids[number] = pid
            self._numbers[pid] = number
            self._report("started", number, pid)
        for descriptor in given:
            os.close(descriptor)

    def _become_child(self, guard: int, given: list[int]) -> None:
        """Continue as the child. Never returns."""
        status = _BROKEN
        try:
            _reset_signals()
            os.setsid()
            adopt_orphans()
            if die_with_parent(signal.SIGKILL, guard):
                _arrange_descriptors(given)
                self._run_child()
                status = child.ENDED
        except BaseException as error:  # noqa: BLE001 - this process must never continue as a second guard
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(status)

    def _run_child(self) -> None:
        if self._config["fresh"]:
            with tempfile.TemporaryFile() as file:
                file.write(json.dumps(self._config).encode())
                file.seek(0)
                os.set_inheritable(child.CHANNEL, True)
                os.set_inheritable(file.fileno(), True)
                boot = str(Path(__file__).with_name("boot.py"))
                command = [*self._config["python"], "-P", boot, "child", str(file.fileno())]
                os.execv(command[0], command)  # noqa: S606 - this interpreter
        child.main(self._config)

    def _signal(self, number: int, signal_number: int) -> None:
        # The id cannot belong to another process: a dead child keeps it until `_reap`.
        if (pid := self._pids.get(number)) is not None:
            _kill_group(pid, signal_number)

    def _reap(self) -> None:
        """Report the processes that have ended, and kill the processes that they left behind."""
        # A loop, because the kernel merges signals: one SIGCHLD may announce several ends.
        while (found := _wait_for_any(os.WNOHANG)) is not None:
            pid, status = found
            self._kill_strays()
            number = self._numbers.pop(pid, None)
            if number is not None:
                del self._pids[number]
                self._report("ended", number, os.waitstatus_to_exitcode(status), "")

    def _kill_strays(self) -> None:
        # Children adopt the orphans among their descendants, so a process that moves here was left by a dead child.
        for pid in own_children():
            if pid not in self._numbers:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def end_all(self) -> None:
        """Kill everything below immediately, and wait until it is gone."""
        for pid in self._numbers:
            _kill_group(pid, signal.SIGKILL)
        self._numbers.clear()
        self._kill_strays()
        # Each process that dies may leave others behind, which this process adopts only then. The loop ends when
        # nothing is left to wait for.
        while _wait_for_any(0) is not None:
            self._kill_strays()


def _load(names: Sequence[str]) -> None:
    """Import the modules and public names of this library that each child would import otherwise."""
    for name in names:
        module, _, attribute = name.partition(":")
        getattr(importlib.import_module(module), attribute or "__name__")


def _look_for_code() -> None:
    """Look for the files that children may read, at most every few seconds, so that not each child has to."""
    importlib.import_module("glidemq_async.executors.sandbox").look_for_code()


def _arrange_descriptors(given: list[int]) -> None:
    """Keep the three standard descriptors and the channel, and close all others."""
    # First to high numbers: a given descriptor may itself have one of the numbers 1 to 3, and `dup2` would close it.
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64) for descriptor in given]
    if len(high) > 1:
        os.dup2(high[1], 1)
        os.dup2(high[-1], 2)
    os.dup2(high[0], child.CHANNEL, inheritable=False)
    os.closerange(child.CHANNEL + 1, _MOST_DESCRIPTORS)


def _wait_for_any(options: int) -> tuple[int, int] | None:
    """Wait for a process to end and kill its group. Return its id and status, None if no process has ended."""
    try:
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            pid, status = os.waitpid(-1, options)
            if pid:
                _kill_group(pid, signal.SIGKILL)
            return (pid, status) if pid else None
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | options)
        if found is None:
            return None
        # Until the process is reaped, its id and its group cannot belong to another process.
        _kill_group(found.si_pid, signal.SIGKILL)
        return os.waitpid(found.si_pid, 0)
    except ChildProcessError:
        return None


def _kill_group(pid: int, number: int) -> None:
    # A child that has not yet called setsid has no process group.
    try:
        os.killpg(pid, number)
    except OSError:
        with suppress(OSError):
            os.kill(pid, number)


def _noticed(number: int, frame: FrameType | None) -> None:
    """Do nothing: the signal number in the wake-up descriptor wakes the loop."""


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
