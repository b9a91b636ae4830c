"""Bounded attacks on limits of resources."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import time

from tests.executors.attacks.registry import Target, attack

_MIB = 2**20


@attack(memory="512MiB")
def memory_bomb(target: Target) -> object:
    return len([bytes(64 * _MIB) for _ in range(16)]) == 16


@attack(memory="512MiB")
def memory_bomb_in_files_without_a_path(target: Target) -> object:
    descriptor = os.memfd_create("bomb")
    os.ftruncate(descriptor, 1024 * _MIB)
    return os.pwrite(descriptor, b"x", 1023 * _MIB)


@attack(cpu=1)
def cpu_spin(target: Target) -> object:
    """Use 3.2 s of processor time and ignore the signal that asks it to end.

    The kernel counts whole seconds: one that has begun, one that is granted, and one after the signal.
    """
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGXCPU])
    until = time.process_time() + 3.2
    while time.process_time() < until:
        pass
    return True


@attack(file_size="1MiB")
def file_bomb(target: Target) -> object:
    with open(f"{target.work}/bomb", "wb") as file:
        file.writelines(bytes(_MIB) for _ in range(4))
    return os.path.getsize(f"{target.work}/bomb") == 4 * _MIB


@attack(open_files=32)
def descriptor_bomb(target: Target) -> object:
    descriptors: list[int] = []
    try:
        while len(descriptors) < 100:
            descriptors.append(os.open("/dev/null", os.O_RDONLY))
        return True
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


@attack(memory="512MiB")
def lift_the_limit(target: Target) -> object:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return len(bytes(1024 * _MIB))


@attack(memory="512MiB")
def fill_a_large_socket_buffer(target: Target) -> object:
    """Fill the kernel's buffers for one pair of sockets, after asking for larger ones."""
    ours, _theirs = socket.socketpair()
    usual = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * usual)
    ours.setblocking(False)
    sent = 0
    try:
        while True:
            sent += ours.send(bytes(65_536))
    except BlockingIOError:
        return sent > usual


@attack(memory="512MiB", network=True)
def enlarge_what_is_received(target: Target) -> object:
    with socket.socket() as ours:
        usual = ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, usual + 4_096)
        return ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) > usual


@attack(memory="512MiB")
def enlarge_a_pipe(target: Target) -> object:
    return fcntl.fcntl(os.pipe()[1], 1031, 2**20) == 2**20


@attack(memory="64MiB")
def hoard_sockets(target: Target) -> object:
    return len([socket.socketpair() for _ in range(40)]) == 40
