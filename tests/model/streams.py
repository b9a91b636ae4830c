"""Compares the streams of chunks with the model: their chunks, and their ends."""

from __future__ import annotations

from typing import Final

from tests.model.compare import same
from tests.model.driver import BASE, Belongings, Driver
from tests.model.lines import Lines as Queue
from tests.model.parts import Job

NO_LIMIT: Final = 10**9
"""A limit of chunks, bytes and milliseconds that is never reached."""


def compare_streams(driver: Driver, stored: Belongings, model: Queue) -> None:
    """Check that exactly the jobs that have not ended have open streams, and read each stream."""
    jobs = [job for job in model.jobs.values() if job.chunks is not None and not job.record_lost]
    lost = {job.id for job in model.jobs.values() if job.record_lost}
    same("open streams", stored.open_streams - lost, {job.id for job in jobs if not job.over})
    for job in jobs:
        entries = driver.stream_of(job.id)
        end = entries.pop()[1] if job.over else None
        same(f"chunks of job {job.id}", entries, _stored(job))
        if end is not None:
            same(f"end of the stream of job {job.id}", end[:4], ["end", job.state, "run", str(job.fence)])
            same(f"reason of the stream of job {job.id}", _value(end, "reason"), _reason(job))
            assert driver.wire.send("PTTL", f"{BASE}:chunks:{job.id}") != -1, f"the stream of {job.id} stays for ever"


def _stored(job: Job) -> list[tuple[str, list[str]]]:
    assert job.chunks is not None
    return [(f"{number}-{run}", ["", chunk]) for number, (run, chunk) in enumerate(job.chunks, 1)]


def _value(fields: list[str], name: str) -> str:
    return fields[fields.index(name) + 1]


def _reason(job: Job) -> str:
    return (job.reason or "") if job.state == "failed" else ""
