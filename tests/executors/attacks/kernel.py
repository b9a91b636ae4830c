"""Attacks on other parts of the kernel: namespaces, keys, queues, and ways around the filter itself."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import threading

from glidemq_async.executors.sandbox.kernel import machine
from tests.executors.attacks.registry import Target, attack, syscall

_NEW_USER, _NEW_MOUNTS, _NEW_NET = 0x10000000, 0x00020000, 0x40000000


@attack()
def set_up_io_uring(target: Target) -> object:
    return syscall("io_uring_setup", 4, ctypes.create_string_buffer(120)) >= 0


@attack()
def load_bpf(target: Target) -> object:
    attributes = ctypes.create_string_buffer(struct.pack("4I", 2, 4, 8, 1), 72)
    return syscall("bpf", 0, attributes, 72) >= 0


@attack()
def watch_performance(target: Target) -> object:
    attributes = ctypes.create_string_buffer(struct.pack("IIQ", 1, 64, 0), 64)
    return syscall("perf_event_open", attributes, 0, -1, -1, 0) >= 0


@attack()
def handle_page_faults(target: Target) -> object:
    return syscall("userfaultfd", os.O_CLOEXEC | 1) >= 0


@attack()
def read_keys(target: Target) -> object:
    return syscall("keyctl", 0, -3, 1) != 0


@attack()
def add_key(target: Target) -> object:
    return syscall("add_key", b"user", b"mark", b"words", 5, -2) > 0


@attack()
def new_user_namespace(target: Target) -> object:
    return syscall("unshare", _NEW_USER | _NEW_NET) == 0


@attack()
def new_mounts(target: Target) -> object:
    return syscall("unshare", _NEW_MOUNTS) == 0


@attack(subprocess=True)
def new_namespace_for_a_child(target: Target) -> object:
    pid = syscall("clone", _NEW_USER | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[0] == pid


@attack()
def enter_a_namespace(target: Target) -> object:
    return syscall("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0) == 0


@attack()
def change_root(target: Target) -> object:
    os.chroot(target.work)
    return os.listdir("/") == []


@attack()
def mount(target: Target) -> object:
    os.mkdir(f"{target.work}/mount")
    syscall("mount", b"none", os.fsencode(f"{target.work}/mount"), b"tmpfs", 0, None)
    syscall("umount2", os.fsencode(f"{target.work}/mount"), 0)
    return True


@attack()
def copy_a_mount(target: Target) -> object:
    return syscall("open_tree", -100, os.fsencode(target.outside), 1) >= 0


@attack()
def new_file_system(target: Target) -> object:
    return syscall("fsopen", b"tmpfs", 0) >= 0


@attack()
def type_into_the_terminal(target: Target) -> object:
    fcntl.ioctl(target.terminal, 0x5412, b"x")
    return True


@attack()
def type_into_the_terminal_with_high_bits(target: Target) -> object:
    """The kernel takes 32 bits of the command: a filter that compares all 64 lets this one pass."""
    return syscall("ioctl", target.terminal, 0x5412 | 1 << 32, b"x") == 0


@attack()
def share_memory(target: Target) -> object:
    segment = syscall("shmget", 0, 4096, 0o1600)
    syscall("shmctl", segment, 0, None)
    return True


@attack()
def queue_messages(target: Target) -> object:
    queue = syscall("msgget", 0, 0o1600)
    syscall("msgctl", queue, 0, None)
    return True


@attack()
def open_message_queue(target: Target) -> object:
    name = b"glidemq-attack"
    queue = syscall("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, None)
    syscall("mq_unlink", name)
    return queue >= 0


@attack()
def share_semaphores(target: Target) -> object:
    found = syscall("semget", 0, 1, 0o1600)
    syscall("semctl", found, 0, 0, 0)
    return True


@attack()
def change_personality(target: Target) -> object:
    return syscall_personality(0x0040000)


def syscall_personality(value: int) -> bool:
    syscall("personality", value)
    return syscall("personality", 0xFFFFFFFF) == value


@attack()
def read_the_log_of_the_kernel(target: Target) -> object:
    return syscall("syslog", 10, None, 0) >= 0


@attack()
def make_hidden_memory(target: Target) -> object:
    return syscall("memfd_secret", 0) >= 0


@attack()
def set_the_name_of_the_host(target: Target) -> object:
    name = os.fsencode(os.uname().nodename)
    return syscall("sethostname", name, len(name)) == 0


@attack()
def enter_through_32_bits(target: Target) -> object:
    """The 32-bit entry has another table, where numbers mean other calls: getpid there is 20."""
    if machine() != "x86_64":
        return False
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex("53b814000000cd805bc3"))
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    return function() == os.getpid()


@attack()
def escape_in_a_thread(target: Target) -> object:
    found: list[object] = []

    def reach() -> None:
        with open(target.secret, encoding="utf-8") as file:
            found.append(file.read())

    thread = threading.Thread(target=reach)
    threading.excepthook = lambda _: None
    thread.start()
    thread.join()
    return found
