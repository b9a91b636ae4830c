"""Progress of sent bytes, which shows that the peer still takes them.

The event loop hands bytes to the kernel long before the peer has them, so only the kernel knows the progress. The
kernel is asked when a deadline has passed, never for each request.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
from typing import Final, NamedTuple

_QUEUED: Final = 0x5411
"""TIOCOUTQ of Linux: bytes of a socket that the peer has not acknowledged."""
_INFO_BYTES: Final = 128
_BYTES_ACKED: Final = 120
"""Offset of tcpi_bytes_acked in Linux' struct tcp_info."""
_LAST_ACK: Final = 56
"""Offset of tcpi_last_ack_recv: milliseconds since the last acknowledgement."""
_LINUX: Final = sys.platform.startswith("linux")


class _Measured(NamedTuple):
    """Bytes that the peer has not taken, all bytes that it took, and seconds since it last acknowledged any."""

    waiting: int
    taken: int = 0
    silent: float = 0.0


class Transit:
    """The sent bytes of one connection that have not reached its peer."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._last: _Measured | None = None

    def moves(self, within: float) -> bool:
        """Return whether the peer took bytes since the previous call.

        The first call has nothing to compare with. It returns True if bytes are on their way and the peer acknowledged
        some within the last `within` seconds.
        """
        measured = self._measure()
        last, self._last = self._last, measured if measured.waiting else None
        if last is None:
            return measured.waiting > 0 and measured.silent < within
        # Both conditions are needed. Other callers may have added requests since the last call, so the queue can be
        # longer although the peer took bytes. A unix socket does not count the bytes that its peer took, so there the
        # length of the queue is the only sign.
        return measured.taken > last.taken or measured.waiting < last.waiting

    def _measure(self) -> _Measured:
        # The event loop's buffer is only the first of two. A transport hands its bytes to the kernel as soon as the
        # kernel has room, which says nothing about the peer. The kernel's own queue contains sent bytes without an
        # acknowledgement. Other systems than Linux have no such question, so there only the first buffer shows
        # progress.
        waiting = self._transport.get_write_buffer_size()
        opened: socket.socket | None = self._transport.get_extra_info("socket")
        if opened is None or not _LINUX:
            return _Measured(waiting)
        try:
            waiting += int(struct.unpack("i", fcntl.ioctl(opened.fileno(), _QUEUED, bytes(4)))[0])
            if opened.family in (socket.AF_INET, socket.AF_INET6):
                info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
                if len(info) == _INFO_BYTES:
                    taken = int(struct.unpack_from("Q", info, _BYTES_ACKED)[0])
                    return _Measured(waiting, taken, int(struct.unpack_from("I", info, _LAST_ACK)[0]) / 1000)
        except OSError:
            pass
        return _Measured(waiting)
