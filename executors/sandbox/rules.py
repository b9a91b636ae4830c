"""The system calls that permissions refuse. Each group names the possible misuse of its calls."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Final

from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.sandbox.filters import Rule

_ALWAYS: Final = {
    "the memory and the descriptors of other processes": (
        "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd perf_event_open "
        "userfaultfd migrate_pages move_pages"
    ),
    "large parts of the kernel that a job has no use for": (
        "bpf add_key request_key keyctl io_uring_setup io_uring_enter io_uring_register init_module finit_module "
        "delete_module kexec_load kexec_file_load reboot swapon swapoff acct quotactl quotactl_fd syslog "
        "lookup_dcookie nfsservctl sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex iopl "
        "ioperm modify_ldt vhangup uselib _sysctl sysfs ustat lsm_set_self_attr set_mempolicy_home_node"
    ),
    "other views of the file system": (
        "mount umount2 pivot_root chroot mount_setattr move_mount open_tree open_tree_attr fsopen fsconfig fsmount "
        "fspick statmount listmount unshare setns"
    ),
    "files without a path, and memory that no limit counts": (
        "open_by_handle_at name_to_handle_at fanotify_init fanotify_mark memfd_create memfd_secret"
    ),
    "memory and messages shared with other processes of the user": (
        "shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink "
        "mq_timedsend mq_timedreceive mq_notify mq_getsetattr"
    ),
    "leaving the process group by which the worker ends a run": "setsid setpgid",
}
_PROGRAMS: Final = "fork vfork execve execveat"
_METADATA: Final = (
    "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat setxattr lsetxattr "
    "fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr"
)
_SOCKETS_OFF: Final = "socket connect bind listen accept accept4"

_CLONE_THREAD, _CLONE_PARENT, _NAMESPACES = 0x00010000, 0x00008000, 0x7E020000
_TERMINAL: Final = (0x5412, 0x541C, 0x5423, 0x540E, 0x541D)
"""TIOCSTI (types into a terminal), TIOCLINUX, TIOCSETD, TIOCSCTTY, TIOCCONS."""
_SIGNALS_BY_IO: Final = (0x8901, 0x8902)
_FILE_FLAGS: Final = (0x40086602, 0x401C5820)
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15
_F_SETLEASE, _F_NOTIFY = 1024, 1026
_PR_SET_PDEATHSIG: Final = 1
_QUERY_PERSONALITY: Final = 0xFFFFFFFF
_UNIX, _INET, _INET6 = 1, 2, 10
_STREAM, _DATAGRAM, _PACKETS, _KIND = 1, 2, 5, 0xF
_ANY_PROTOCOL, _TCP = 0, 6
_FAST_OPEN: Final = 0x20000000
_O_TRUNC, _O_WRITES, _O_BOTH = 0o1000, 0o3, 0o3
_S_ISUID, _S_ISGID = 0o4000, 0o2000
_SOL_SOCKET: Final = 1
_BUFFER_SIZES: Final = (7, 8, 32, 33)
"""SO_SNDBUF, SO_RCVBUF, SO_SNDBUFFORCE, SO_RCVBUFFORCE."""
_F_SETPIPE_SZ: Final = 1031


def rules_for(permissions: Permissions, landlock: int) -> list[Rule]:
    """Return the rules for permissions that are not granted, with this version of Landlock (0: none)."""
    rules = [Rule(call) for calls in _ALWAYS.values() for call in calls.split()]
    rules += _neighbours(permissions, landlock)
    rules += _processes(permissions)
    rules += _network(permissions)
    rules += _files(permissions, landlock)
    rules += _buffers(permissions)
    return rules


def _neighbours(permissions: Permissions, landlock: int) -> Iterator[Rule]:
    """Yield rules for priorities, limits and signals of other processes: the kernel checks only the user."""
    yield from _scheduling()
    # A process that opens a leased file waits for the holder, for up to 45 seconds.
    yield Rule("fcntl", 1, (_F_SETLEASE, _F_NOTIFY))
    yield Rule("ioctl", 1, (*_TERMINAL, *_SIGNALS_BY_IO))
    # Without the death signal, the child would outlive a worker that is killed.
    yield Rule("prctl", 0, (_PR_SET_PDEATHSIG,))
    yield Rule("personality", 0, (_QUERY_PERSONALITY,), unless=True)
    yield from _signals(permissions, landlock)


def _signals(permissions: Permissions, landlock: int) -> Iterator[Rule]:
    # Signals through asynchronous input: the kernel sends them on behalf of the process.
    yield Rule("fcntl", 1, (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX))
    if landlock < 6 and not permissions.subprocess:
        # Landlock confines signals from version 6 on. A process without child processes needs only its own id.
        own = (os.getpid(),)
        for call in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
            yield Rule(call, 0, own, unless=True)
        yield from (Rule("tkill"), Rule("pidfd_send_signal"))


def _scheduling() -> Iterator[Rule]:
    """Yield rules that permit limits and priorities only of the process itself, which has the number 0."""
    yield Rule("prlimit64", 0, (0,), unless=True)
    for call in ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"):
        yield Rule(call, 0, (0,), unless=True)
    for call in ("setpriority", "ioprio_set"):
        yield Rule(call, 0, (0,) if call == "setpriority" else (1,), unless=True)
        yield Rule(call, 1, (0,), unless=True)


def _processes(permissions: Permissions) -> Iterator[Rule]:
    # Two things must stay possible in every process: threads, which Python libraries start on their own, and the
    # fallback of the C library from clone3 to clone. One must not: CLONE_PARENT would make the new process a child of
    # the guard, outside of the tree of the job's process.
    # The flags of clone3 are in memory, which a filter cannot read. After ENOSYS the C library uses clone.
    yield Rule("clone3", error=errno.ENOSYS)
    for flag in (_CLONE_PARENT, *(1 << bit for bit in range(32) if _NAMESPACES >> bit & 1)):
        yield Rule("clone", 0, (flag,), mask=flag)
    if permissions.subprocess:
        return
    yield Rule("clone", 0, (_CLONE_THREAD,), mask=_CLONE_THREAD, unless=True)
    yield from (Rule(call) for call in _PROGRAMS.split())


def _network(permissions: Permissions) -> Iterator[Rule]:
    if permissions.network is True:
        yield Rule("socket", 0, (_UNIX, _INET, _INET6), unless=True)
        yield Rule("socket", 1, (_STREAM, _DATAGRAM, _PACKETS), mask=_KIND, unless=True)
        return
    # A stream pair stays connected to itself. A pair of datagram sockets could send to any path.
    yield Rule("socketpair", 0, (_UNIX,), unless=True)
    yield Rule("socketpair", 1, (_STREAM, _PACKETS), mask=_KIND, unless=True)
    if permissions.network is False:
        yield from (Rule(call) for call in _SOCKETS_OFF.split())
    else:
        yield from _tcp_clients()


def _tcp_clients() -> Iterator[Rule]:
    """Yield rules that permit only connections whose port Landlock checks."""
    # Landlock checks the ports, but only for TCP and only in bind and connect.
    yield Rule("socket", 0, (_INET, _INET6), unless=True)
    yield Rule("socket", 1, (_STREAM,), mask=_KIND, unless=True)
    yield Rule("socket", 2, (_ANY_PROTOCOL, _TCP), unless=True)
    yield from (Rule("bind"), Rule("listen"))
    for call, argument in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        yield Rule(call, argument, (_FAST_OPEN,), mask=_FAST_OPEN)


def _files(permissions: Permissions, landlock: int) -> Iterator[Rule]:
    if permissions.read is not True:
        yield Rule("inotify_add_watch")
    if permissions.write is True:
        return
    # Landlock does not check modes, owners, times and attributes: a job could change them for any file of its user.
    yield from (Rule(call) for call in _METADATA.split())
    yield Rule("ioctl", 1, _FILE_FLAGS)
    # A file can also be created with these bits. The mode of openat2 is in memory, which a filter cannot read.
    yield Rule("openat2", error=errno.ENOSYS)
    for call, argument in (("open", 2), ("creat", 1), ("openat", 3), ("mknod", 1), ("mknodat", 2)):
        yield Rule(call, argument, (_S_ISUID, _S_ISGID, _S_ISUID | _S_ISGID), mask=_S_ISUID | _S_ISGID)
    if landlock < 3:
        yield from _truncation()


def _truncation() -> Iterator[Rule]:
    # Landlock checks truncation from version 3 on. Before that, at least truncation by opening is refused.
    yield Rule("truncate")
    for call, argument in (("open", 1), ("openat", 2)):
        yield Rule(call, argument, (_O_TRUNC, _O_TRUNC | _O_BOTH), mask=_O_TRUNC | _O_WRITES)


def _buffers(permissions: Permissions) -> Iterator[Rule]:
    """Yield rules for larger buffers of sockets and pipes: kernel memory does not count for the limit of `memory`."""
    if permissions.memory is None:
        return
    yield Rule("setsockopt", 2, _BUFFER_SIZES, only=(1, _SOL_SOCKET))
    yield Rule("fcntl", 1, (_F_SETPIPE_SZ,))
