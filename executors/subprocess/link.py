"""A child's end of the channel: frames out from any thread, frames in by whoever reads."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator

from glidemq_async.executors.subprocess.frames import CHUNK, Frame, Splitter, packed


class Link:
    """One socket to the worker."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sending = threading.Lock()

    @property
    def descriptor(self) -> int:
        """The descriptor of the socket."""
        return self._socket.fileno()

    def send(self, *frame: object) -> None:
        """Send a frame. Raises OSError when the worker is gone, ExecutorError for one that is too large."""
        data = packed(*frame)
        with self._sending:
            self._socket.sendall(data)

    def offer(self, seconds: float, *frame: object) -> int:
        """Send a frame of some kilobytes if that is possible within `seconds`. Raises OSError.

        Returns how many bytes were sent, 0 for none.
        """
        data, until = packed(*frame), time.monotonic() + seconds
        if not self._sending.acquire(timeout=seconds):
            return 0
        try:
            # What can be written to has room for it.
            if not select.select([], [self._socket], [], max(0.0, until - time.monotonic()))[1]:
                return 0
            self._socket.sendall(data)
        finally:
            self._sending.release()
        return len(data)

    def frames(self) -> Iterator[Frame]:
        """Give what arrives, until the worker is gone."""
        splitter = Splitter()
        while True:
            try:
                data = self._socket.recv(CHUNK)
            except OSError:
                return
            if not data:
                return
            yield from splitter.feed(data)
