"""Typed calls of the functions for signals and suspended jobs: `signals.lua`."""

from __future__ import annotations

from typing import NamedTuple, cast

from glidemq_async.functions.calling import Calls, text


class BufferedSignal(NamedTuple):
    """A signal in a mailbox. Times are in server milliseconds; `expires` is 0 for a signal that does not expire."""

    name: str
    data: bytes
    sent: int
    expires: int
    question: str = ""

    def stored(self) -> bytes:
        """Return the stored form of the signal."""
        head = f"{self.sent} {self.expires} {self.name}" + (f"\x1e{self.question}" if self.question else "")
        return head.encode() + b"\x1f" + self.data


class SignalCalls(Calls):
    """Calls of the functions in `signals.lua`."""

    __slots__ = ()

    async def send(self, job_id: str, name: str, data: bytes, ttl_ms: int, once: str = "", question: str = "") -> str:
        """Deliver a signal to a job. Return the status; `signals.lua` describes it and the arguments."""
        # With a number: a repeated call must not deliver the signal twice.
        return text(await self._caller.once("sendSignal", [job_id, name, data, ttl_ms, once, question]))

    async def resume(self, job_id: str) -> str:
        """Resume a suspended job. Return the status."""
        return text(await self._caller.once("resumeJob", [job_id]))

    async def mailbox(self, job_id: str) -> list[BufferedSignal]:
        """Return the buffered signals of a job in their order."""
        rows = cast("list[tuple[bytes, bytes, int, int, bytes]]", await self._caller.read("getMailbox", [job_id]))
        return [BufferedSignal(row[0].decode(), *row[1:4], row[4].decode()) for row in rows]
