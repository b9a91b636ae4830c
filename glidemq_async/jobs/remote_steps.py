"""The journal of a run in another process, which has neither the serializer nor the codecs of the queue.

There every payload is plain msgpack. The worker converts each step.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

from glidemq_async.jobs.job import Job
from glidemq_async.jobs.recorded_steps import unpack_step
from glidemq_async.jobs.snapshot import client_of, entry_of
from glidemq_async.payloads.serialization import MsgpackSerializer

_PLAIN: Final = MsgpackSerializer()


async def plain_journal(job: Job[Any, Any]) -> tuple[dict[str, bytes], int]:
    """Return the recorded steps of a running job in plain form, and the fencing token of its last requeued run."""
    client = client_of(job)
    kept = await client.read_steps(job.id)
    plain: dict[str, bytes] = {}
    for identity, packed in kept.steps.items():
        step = unpack_step(packed)
        body = _PLAIN.dumps(client.decode(step.body, "step", step.name, job.id))
        plain[identity] = msgpack.packb(step._replace(body=body))
    return plain, kept.requeued


async def record_plain(job: Job[Any, Any], identity: str, packed: bytes) -> str:
    """Record a step in plain form for a running job. Return the status."""
    client = client_of(job)
    step = unpack_step(packed)
    body = client.encode(_PLAIN.loads(step.body), "step", step.name, job.id)
    stored = msgpack.packb(step._replace(run=job.fence, body=body))
    return await client.record_step(job.id, entry_of(job), identity, stored)
