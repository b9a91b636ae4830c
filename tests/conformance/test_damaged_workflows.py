"""`queue.check()` finds damaged plans of flows, suspended jobs that nothing resumes, and mailboxes without a job."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import FlowJob, FlowProducer
from tests.support.helpers import AnyJob, AnyQueue, worker_of
from tests.support.stores import RunningStore

SEP = "\x1f"
SIGNAL = f"1 0 go{SEP}x"

DAMAGES: list[tuple[str, tuple[str, ...]]] = [
    # Each live child is in a plan whose parent waits for it.
    ("I19", ("HSET", "{base}:flowed", "ghost", f"1 stamp root{SEP}")),
    ("I19", ("DEL", "{base}:flow:{root}")),
    ("I19", ("HDEL", "{base}:flow:{root}", "1")),
    ("I19", ("HSET", "{base}:flow:{root}", "e1", "cx")),
    # A parent waits for exactly its children that have not ended.
    ("I20", ("HDEL", "{base}:flowed", "{root}")),
    ("I20", ("HSET", "{base}:flow:{root}", "w0", "0")),
    ("I20", ("HSET", "{base}:flow:{root}", "w0", "3")),
    # Something resumes each suspended job.
    ("I22", ("HDEL", "{base}:job:{suspended}", "waits")),
    ("I22", ("HSET", "{base}:job:{suspended}", "waits", "nnothing")),
    ("I22", ("HSET", "{base}:job:{suspended}", "waits", f"n{SEP}go{SEP}\x1d")),
    ("I22", ("RPUSH", "{base}:signals:{suspended}", SIGNAL)),
    # No mailbox is without its job, and each signal is counted.
    ("I23", ("HSET", "{base}:signalled", "mghost", "1 9")),
    ("I23", ("HSET", "{base}:signalled", "wghost", "x")),
    ("I23", ("RPUSH", "{base}:signals:ghost", SIGNAL)),
    ("I23", ("RPUSH", "{base}:signals:{early}", SIGNAL)),
    ("I23", ("DEL", "{base}:signals:{early}")),
]


async def suspend(job: AnyJob) -> Any:
    await job.suspend(signals=["go"])


@pytest.mark.parametrize(("invariant", "command"), DAMAGES)
async def test_a_check_finds_damaged_flows_and_signals(
    queue: AnyQueue, store: RunningStore, invariant: str, command: tuple[str, ...]
) -> None:
    suspended = await queue.add("n")
    async with worker_of(queue, suspend) as worker:
        await worker.until_empty()
    early = await queue.add("n", delay=60)
    await early.signal("go")
    async with FlowProducer(queue.storage) as flows:
        flow = await flows.add(FlowJob("root", queue.name, children=[FlowJob("leaf", queue.name) for _ in range(2)]))
    assert await queue.check() == []
    base = f"glide:{{{queue.name}}}"
    names = {"base": base, "root": flow.job.id, "suspended": suspended.id, "early": early.id}
    await store.ask(*(word.format(**names) for word in command))
    found = await queue.check()
    assert invariant in {finding.invariant for finding in found}, found
    await store.command("FLUSHALL")
