"""Checks with echoes that the wake-up subscription of an idle worker delivers messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

ECHO_SECONDS: Final = 2.0
"""Time to wait for the echo of an idle worker before the wake-up subscription is considered broken."""


class EchoCheck:
    """Calls `on_missing` if an echo that a call has requested does not arrive.

    A connection can be open and still deliver nothing, for example after a firewall has dropped its state. An idle
    worker would then not be woken, so each poll requests an echo to the worker's own channel.
    """

    def __init__(self, on_missing: Callable[[], None]) -> None:
        self._on_missing = on_missing
        self._expected = False
        self._timer: asyncio.TimerHandle | None = None

    def expect(self) -> None:
        """Expect an echo. Called before the call is sent, because the echo may arrive before the reply."""
        self._expected = True

    def arrived(self) -> None:
        """Note that the echo has arrived."""
        self._expected = False
        self.cancel()

    def sent(self, receivers: int) -> None:
        """Note that the server has published the echo to this number of subscriptions."""
        if self._expected and self._timer is None:
            seconds = ECHO_SECONDS if receivers else 0.0
            self._timer = asyncio.get_running_loop().call_later(seconds, self._report_missing)

    def cancel(self) -> None:
        """Stop waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report_missing(self) -> None:
        self._timer = None
        self._on_missing()
