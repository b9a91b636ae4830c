"""A child's end of the channel. Any thread may send frames; one thread reads them."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator

from glidemq_async.executors.subprocess.frames import CHUNK, Frame, Splitter, packed


class WorkerSocket:
    """One socket to the worker."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sending = threading.Lock()

    @property
    def descriptor(self) -> int:
        """The descriptor of the socket."""
        return self._socket.fileno()

    def send(self, *frame: object) -> None:
        """Send a frame. Raises OSError when the worker is gone, ExecutorError for a frame that is too large."""
        data = packed(*frame)
        with self._sending:
            self._socket.sendall(data)

    def offer(self, seconds: float, *frame: object) -> int:
        """Send a frame of some kilobytes if the socket accepts it within `seconds`. Raises OSError.

        Return the number of bytes sent, or 0.
        """
        # For log records. A handler that logs must not stop because the worker reads slowly, so the wait for the lock
        # and for the socket is bounded. Only whole frames are sent: half a frame would make the rest of the channel
        # unreadable.
        data, until = packed(*frame), time.monotonic() + seconds
        if not self._sending.acquire(timeout=seconds):
            return 0
        try:
            # A writable socket has room for a frame of this size.
            if not select.select([], [self._socket], [], max(0.0, until - time.monotonic()))[1]:
                return 0
            self._socket.sendall(data)
        finally:
            self._sending.release()
        return len(data)

    def frames(self) -> Iterator[Frame]:
        """Yield received frames until the worker is gone."""
        splitter = Splitter()
        while True:
            try:
                data = self._socket.recv(CHUNK)
            except OSError:
                return
            if not data:
                return
            yield from splitter.feed(data)
