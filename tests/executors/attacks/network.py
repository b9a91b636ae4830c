"""Attacks over the network: sending data to servers on the loopback."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from contextlib import suppress

from tests.executors.attacks.registry import Target, attack, syscall

_MPTCP = 262


def _greets(connection: socket.socket) -> bool:
    connection.settimeout(2)
    return connection.recv(5) == b"hello"


@attack()
def connect_tcp(target: Target) -> object:
    return _greets(socket.create_connection(("127.0.0.1", target.tcp), timeout=2))


@attack(subprocess=True)
def connect_tcp_from_a_child(target: Target) -> object:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if connect_tcp(target) else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@attack()
def bind_tcp(target: Target) -> object:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        return server.getsockname()[1]


@attack()
def send_udp(target: Target) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(2)
        sender.sendto(b"words", ("127.0.0.1", target.udp))
        return sender.recv(5) == b"hello"


@attack()
def ask_dns(target: Target) -> object:
    """A question to a name server on the loopback: it carries data out where only DNS is permitted."""
    question = struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + b"\x05words\x07example\x00" + struct.pack(">2H", 16, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.settimeout(2)
        resolver.connect(("127.0.0.1", target.udp))
        resolver.send(question)
        return resolver.recv(5) == b"hello"


@attack(network=True)
def open_raw_socket(target: Target) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        return raw.fileno() >= 0


@attack(network=True)
def open_packet_socket(target: Target) -> object:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        return raw.fileno() >= 0


@attack()
def open_netlink_socket(target: Target) -> object:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as link:
        return link.fileno() >= 0


@attack()
def open_crypto_socket(target: Target) -> object:
    with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET) as link:
        return link.fileno() >= 0


@attack()
def connect_unix(target: Target) -> object:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(target.unix)
        return _greets(client)


@attack()
def connect_abstract(target: Target) -> object:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + target.abstract)
        return _greets(client)


@attack()
def bind_abstract(target: Target) -> object:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{target.abstract}-{os.getpid()}")
        return True


@attack()
def send_from_a_pair(target: Target) -> object:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        return one.sendto(b"words", target.datagrams)


@attack()
def reconnect_a_pair(target: Target) -> object:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.connect(target.datagrams)
        return one.send(b"words")


@attack()
def connect_by_number(target: Target) -> object:
    """The same by system calls, without Python's own functions."""
    descriptor = syscall("socket", socket.AF_INET, socket.SOCK_STREAM, 0)
    address = struct.pack("=H", socket.AF_INET) + struct.pack(">H", target.tcp) + socket.inet_aton("127.0.0.1")
    syscall("connect", descriptor, ctypes.create_string_buffer(address, 16), 16)
    return _greets(socket.socket(fileno=descriptor))


def _ports(target: Target, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> bool:
    with socket.socket(socket.AF_INET, kind, protocol) as client:
        client.settimeout(2)
        client.connect(("127.0.0.1", target.tcp))
        return _greets(client)


@attack(network=["granted"])
def connect_to_another_port(target: Target) -> object:
    return _ports(target)


@attack(network=["granted"])
def connect_to_another_port_by_multipath(target: Target) -> object:
    return _ports(target, protocol=_MPTCP)


@attack(network=["granted"])
def connect_to_another_port_with_the_first_packet(target: Target) -> object:
    with socket.socket() as client:
        with suppress(BlockingIOError):
            client.sendto(b"words", 0x20000000 | socket.MSG_DONTWAIT, ("127.0.0.1", target.tcp))
        return _greets(client)


@attack(network=["granted"])
def listen_without_binding(target: Target) -> object:
    with socket.socket() as server:
        server.listen()
        return server.getsockname()[1]


@attack(network=["granted"])
def bind_beside_ports(target: Target) -> object:
    return bind_tcp(target)


@attack(network=["granted"])
def send_udp_beside_ports(target: Target) -> object:
    return send_udp(target)


@attack(network=["granted"])
def connect_unix_beside_ports(target: Target) -> object:
    return connect_unix(target)


@attack(network=["granted"])
def connect_abstract_beside_ports(target: Target) -> object:
    return connect_abstract(target)
