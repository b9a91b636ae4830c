"""Attacks on other processes, and on the rule that a job starts no process."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.executors.attacks.registry import WON, Target, attack, syscall

_SEIZE = 0x4206


def gone(pid: int) -> bool:
    """Return whether a process ended within two seconds."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        if _state(pid) in ("Z", "X", ""):
            return True
        time.sleep(0.005)
    return False


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""
    except PermissionError:
        # A process that the job cannot see may still exist, so the test also checks the victim from outside.
        return "?"


@attack()
def kill_the_victim(target: Target) -> object:
    os.kill(target.victim, signal.SIGTERM)
    return gone(target.victim)


@attack(subprocess=True)
def kill_the_victim_from_a_child(target: Target) -> object:
    pid = os.fork()
    if pid == 0:
        try:
            os.kill(target.victim, signal.SIGTERM)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return gone(target.victim)


@attack()
def signal_the_parent(target: Target) -> object:
    os.kill(os.getppid(), 0)
    return True


@attack()
def kill_the_group_of_the_victim(target: Target) -> object:
    os.killpg(os.getpgid(target.victim), signal.SIGTERM)
    return gone(target.victim)


@attack()
def kill_a_thread_of_the_victim(target: Target) -> object:
    syscall("tgkill", target.victim, target.victim, signal.SIGTERM)
    return gone(target.victim)


@attack()
def kill_by_thread_number(target: Target) -> object:
    syscall("tkill", target.victim, signal.SIGTERM)
    return gone(target.victim)


@attack()
def queue_a_signal(target: Target) -> object:
    info = ctypes.create_string_buffer(b"\x0f\0\0\0\0\0\0\0\xff\xff\xff\xff", 128)
    syscall("rt_sigqueueinfo", target.victim, signal.SIGTERM, info)
    return gone(target.victim)


@attack()
def kill_by_descriptor(target: Target) -> object:
    signal.pidfd_send_signal(os.pidfd_open(target.victim), signal.SIGTERM)
    return gone(target.victim)


@attack()
def kill_by_input(target: Target) -> object:
    """Ask the kernel to signal the victim whenever a pipe has input, and write to the pipe."""
    import fcntl

    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(reading, fcntl.F_SETOWN, target.victim)
    fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)
    os.write(writing, b"x")
    return gone(target.victim)


@attack()
def trace_the_victim(target: Target) -> object:
    syscall("ptrace", _SEIZE, target.victim, 0, 0)
    return True


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _copy(call: str, target: Target) -> bytes:
    buffer = ctypes.create_string_buffer(8)
    ours = _Piece(ctypes.addressof(buffer), 8)
    theirs = _Piece(target.address, 8)
    syscall(call, target.victim, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
    return buffer.raw


@attack()
def read_the_memory_of_the_victim(target: Target) -> object:
    return len(_copy("process_vm_readv", target)) == 8


@attack()
def write_into_the_victim(target: Target) -> object:
    return len(_copy("process_vm_writev", target)) == 8


@attack()
def take_a_descriptor_of_the_victim(target: Target) -> object:
    return syscall("pidfd_getfd", os.pidfd_open(target.victim), 0, 0) >= 0


@attack()
def compare_with_the_victim(target: Target) -> object:
    return syscall("kcmp", os.getpid(), target.victim, 0, 0, 0) >= 0


@attack()
def starve_the_victim(target: Target) -> object:
    resource.prlimit(target.victim, resource.RLIMIT_NOFILE, (0, 0))
    return True


@attack()
def slow_the_victim(target: Target) -> object:
    os.setpriority(os.PRIO_PROCESS, target.victim, 19)
    return os.getpriority(os.PRIO_PROCESS, target.victim) == 19


@attack()
def idle_the_victim(target: Target) -> object:
    os.sched_setscheduler(target.victim, os.SCHED_IDLE, os.sched_param(0))
    return os.sched_getscheduler(target.victim) == os.SCHED_IDLE


@attack()
def pin_the_victim(target: Target) -> object:
    os.sched_setaffinity(target.victim, {0})
    return os.sched_getaffinity(target.victim) == {0}


@attack()
def fork(target: Target) -> object:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[0] == pid


@attack()
def fork_by_number(target: Target) -> object:
    pid = syscall("clone", int(signal.SIGCHLD), 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[0] == pid


@attack()
def fork_by_the_newest_call(target: Target) -> object:
    arguments = (ctypes.c_uint64 * 8)(0, 0, 0, 0, int(signal.SIGCHLD), 0, 0, 0)
    pid = syscall("clone3", arguments, 64)
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[0] == pid


@attack()
def start_a_program(target: Target) -> object:
    return subprocess.run(["/bin/sh", "-c", f"exit {WON}"], check=False).returncode == WON


@attack()
def start_a_shell(target: Target) -> object:
    return os.waitstatus_to_exitcode(os.system(f"exit {WON}")) == WON  # pyright: ignore[reportDeprecated]


@attack()
def spawn(target: Target) -> object:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", f"exit {WON}"], {})
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == WON


@attack()
def become_a_program(target: Target) -> object:
    os.execv("/bin/sh", ["sh", "-c", f"exit {WON}"])


@attack()
def become_a_script_of_its_own(target: Target) -> object:
    script = Path(target.work, "script")
    script.write_text(f"#!/bin/sh\nexit {WON}\n")
    # Its mode is set at its creation, because chmod is a separate attack.
    runnable = os.open(f"{script}-x", os.O_CREAT | os.O_WRONLY, 0o755)
    os.write(runnable, script.read_bytes())
    os.close(runnable)
    os.execv(f"{script}-x", ["script"])


@attack()
def become_a_program_without_a_file(target: Target) -> object:
    descriptor = os.memfd_create("sh")
    os.write(descriptor, Path("/bin/sh").read_bytes())
    os.execve(descriptor, ["sh", "-c", f"exit {WON}"], {})


@attack(subprocess=True)
def start_a_foreign_program(target: Target) -> object:
    """Starting programs is granted, but not programs of a directory that is not granted."""
    return subprocess.run([f"{target.outside}/program"], check=False).returncode == WON


@attack()
def leave_the_group(target: Target) -> object:
    os.setsid()
    return os.getsid(0) == os.getpid()


@attack(subprocess=True)
def leave_the_group_in_a_child(target: Target) -> object:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@attack(subprocess=True)
def become_a_child_of_the_worker(target: Target) -> object:
    """A sibling instead of a child: only the worker would wait for it."""
    pid = syscall("clone", 0x8000 | int(signal.SIGCHLD), 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return pid > 0


@attack()
def outlive_the_worker(target: Target) -> object:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(1, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True


_MANY = 40


@attack(subprocess=True, processes=12, unprivileged=True)
def fork_bomb(target: Target) -> object:
    children: list[int] = []
    try:
        while len(children) < _MANY:
            pid = os.fork()
            if pid == 0:
                time.sleep(10)
                os._exit(0)
            children.append(pid)
        return True
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@attack(processes=12, unprivileged=True)
def thread_bomb(target: Target) -> object:
    over = threading.Event()
    threads = [threading.Thread(target=over.wait, args=(10,)) for _ in range(_MANY)]
    started = 0
    try:
        for thread in threads:
            thread.start()
            started += 1
        return True
    finally:
        over.set()
        for thread in threads[:started]:
            thread.join()


assert sys.platform == "linux", "these attacks are for Linux"
