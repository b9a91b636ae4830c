"""Sends signals to jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from glidemq_async.client.queue_client import QueueClient
from glidemq_async.durations import to_ms
from glidemq_async.errors import DuplicateSignal, MailboxFull, PayloadTooLarge
from glidemq_async.jobs.reply_codes import check_reply
from glidemq_async.jobs.signal_types import signal_type
from glidemq_async.stored.names import check_id

MOST_BYTES: Final = 65_536
"""Maximum size of the payload of a signal, encoded."""


async def send_signal(
    client: QueueClient,
    job_id: str,
    name: str,
    data: object,
    ttl: float | timedelta | None,
    once: str | None,
    *,
    question: str = "",
) -> bool:
    """Deliver a signal to a job; see `Queue.signal`. `question` is the key of the reply for which the sender waits."""
    check_id("name", name)
    ttl_ms = 0 if ttl is None else to_ms("ttl", ttl, allow_zero=False)
    packed = client.encode(data, "signal", "", job_id)
    if len(packed) > MOST_BYTES:
        raise PayloadTooLarge(f"signal {name!r} to job {job_id}", len(packed), MOST_BYTES)
    text = "" if once is None else check_id("once", once)
    code = await client.functions.signals.send(job_id, name, packed, ttl_ms, text, question)
    if code == "full":
        raise MailboxFull(job_id)
    if code == "duplicate":
        raise DuplicateSignal(job_id, text)
    if code not in {"resumed", "buffered"}:
        check_reply(code, "signal", job_id)
    return code == "resumed"


async def send_typed(
    client: QueueClient, job_id: str, signal: object, ttl: float | timedelta | None, once: str | None
) -> bool:
    """Deliver an instance of a class with `@mq.signal`; see `Queue.send`."""
    found = signal_type(type(signal))
    return await send_signal(client, job_id, found.name, found.encode(signal), ttl, once)
