"""The guard: a small process between a worker and its children. It starts them, ends them, and tells how they ended.

Its worker's end is the end of all below it, whatever killed the worker. Every process that a child leaves behind is
adopted here and killed. It has one thread and no code of the user, so it can be forked safely at any time.
"""

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
"""Up to here descriptors are closed in a child: no limit of a process is higher in practice."""
_BROKEN: Final = 70
"""The exit status of a child that ended by an error of ours (`EX_SOFTWARE`)."""


def main(config: Mapping[str, Any]) -> None:
    """Serve a worker until it is gone; does not return."""
    adopt_orphans()
    is_late = not die_with_parent(signal.SIGTERM, config["worker"])
    guard = Guard(socket.socket(fileno=config["control"]), config)
    if not is_late:
        guard.serve()
    guard.end_all()
    # Nothing here needs the interpreter's own way to end.
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
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noticed)
        signal.signal(signal.SIGTERM, _noticed)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _load(config["loaded"])
        # What is here now is shared with every child, and never changes.
        gc.collect()
        gc.freeze()

    def serve(self) -> None:
        """Do what the worker asks for, until it closes the channel or dies."""
        self._tell("guard", frames.PROTOCOL, os.getpid())
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while self._worker_lives():
                for key, _ in selector.select():
                    if key.fileobj is self._wake:
                        with suppress(BlockingIOError):
                            self._wake.recv(4096)
                        self._reap()
                    elif not self._hear():
                        return

    def _worker_lives(self) -> bool:
        # SIGTERM also comes when a mere thread of the worker ends, or from a service manager: neither is its end.
        return bool(os.getppid() == self._config["worker"])

    def _hear(self) -> bool:
        """Take what the worker has sent; False when it is gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 65_536, 32)
        except OSError:
            return False
        self._descriptors += descriptors
        if not data:
            return False
        for frame in self._splitter.feed(data):
            if frame[0] == "start":
                self._start(frame[1], frame[2])
            elif frame[0] == "signal":
                self._signal(frame[1], frame[2])
        return True

    def _tell(self, *frame: object) -> None:
        # The worker is gone: that is noticed where it is listened to.
        with suppress(OSError):
            self._control.sendall(frames.packed(*frame))

    # -- children ---------------------------------------------------------------------------------------------------

    def _start(self, number: int, count: int) -> None:
        """Start a child with the first `count` descriptors that were sent: its channel, and where its output goes."""
        given, self._descriptors = self._descriptors[:count], self._descriptors[count:]
        me = os.getpid()
        if self._config["permissions"] is not None:
            _look_for_code()
        try:
            pid = os.fork()
        except OSError as error:
            self._tell("ended", number, None, f"no process could be started: {error}")
        else:
            if pid == 0:
                self._become_child(me, given)
            self._pids[number] = pid
            self._numbers[pid] = number
            self._tell("started", number, pid)
        for descriptor in given:
            os.close(descriptor)

    def _become_child(self, guard: int, given: list[int]) -> None:
        """Be the child; never returns."""
        status = _BROKEN
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            adopt_orphans()
            if die_with_parent(signal.SIGKILL, guard):
                _arrange_descriptors(given)
                self._live_as_child()
                status = child.ENDED
        except BaseException as error:  # noqa: BLE001 - whatever it is, this process must not go on as a second guard
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(status)

    def _live_as_child(self) -> None:
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
        # Its id cannot have passed to another process: a dead child keeps it until it is reaped, below.
        if (pid := self._pids.get(number)) is not None:
            _kill_group(pid, signal_number)

    def _reap(self) -> None:
        """Note which processes have ended, and kill what they left behind."""
        while (found := _wait_for_any(os.WNOHANG)) is not None:
            pid, status = found
            self._kill_strays()
            number = self._numbers.pop(pid, None)
            if number is not None:
                del self._pids[number]
                self._tell("ended", number, os.waitstatus_to_exitcode(status), "")

    def _kill_strays(self) -> None:
        # Children adopt what their own descendants leave, so what comes here was left by a child that is dead.
        for pid in own_children():
            if pid not in self._numbers:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def end_all(self) -> None:
        """Kill everything below, at once, and wait until it is gone."""
        for pid in self._numbers:
            _kill_group(pid, signal.SIGKILL)
        self._numbers.clear()
        self._kill_strays()
        while _wait_for_any(0) is not None:
            self._kill_strays()


def _load(names: Sequence[str]) -> None:
    """Import what each child would import by itself: modules of this library, and names of its front."""
    for name in names:
        module, _, attribute = name.partition(":")
        getattr(importlib.import_module(module), attribute or "__name__")


def _look_for_code() -> None:
    """Find the files that children may read, now and then, so that not each of them has to."""
    importlib.import_module("glidemq_async.executors.sandbox").look_for_code()


def _arrange_descriptors(given: list[int]) -> None:
    """Leave the standard three and the channel, nothing else."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64) for descriptor in given]
    if len(high) > 1:
        os.dup2(high[1], 1)
        os.dup2(high[-1], 2)
    os.dup2(high[0], child.CHANNEL, inheritable=False)
    os.closerange(child.CHANNEL + 1, _MOST_DESCRIPTORS)


def _wait_for_any(options: int) -> tuple[int, int] | None:
    """Wait for a process to end and kill its group; its id and status, None if there is none (to wait for)."""
    try:
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            pid, status = os.waitpid(-1, options)
            if pid:
                _kill_group(pid, signal.SIGKILL)
            return (pid, status) if pid else None
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | options)
        if found is None:
            return None
        # As long as it is not waited for, its group cannot belong to anybody else.
        _kill_group(found.si_pid, signal.SIGKILL)
        return os.waitpid(found.si_pid, 0)
    except ChildProcessError:
        return None


def _kill_group(pid: int, number: int) -> None:
    # Before its first step a child has no group of its own yet.
    try:
        os.killpg(pid, number)
    except OSError:
        with suppress(OSError):
            os.kill(pid, number)


def _noticed(number: int, frame: FrameType | None) -> None:
    """The wake-up descriptor tells the loop."""
