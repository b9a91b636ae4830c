"""Compares the journals of jobs with the model: their steps, their sizes, and their expiry."""

from __future__ import annotations

from tests.model.compare import same
from tests.model.driver import BASE, Belongings, Driver
from tests.model.lines import Lines as Queue
from tests.model.parts import Job


def compare_journals(driver: Driver, stored: Belongings, model: Queue) -> None:
    """Check that exactly the jobs that have recorded steps have journals, and read each journal."""
    jobs = [job for job in model.jobs.values() if job.steps is not None and not job.record_lost]
    lost = {job.id for job in model.jobs.values() if job.record_lost}
    sizes = {job_id: size for job_id, size in stored.journals.items() if job_id not in lost}
    same("sizes of journals", sizes, {job.id: _size(job) for job in jobs})
    for job in jobs:
        same(f"journal of job {job.id}", driver.journal_of(job.id), job.steps)
        expires = driver.wire.send("PTTL", f"{BASE}:steps:{job.id}") != -1
        same(f"expiry of the journal of job {job.id}", expires, job.state == "completed")


def _size(job: Job) -> str:
    steps = job.steps or {}
    return f"{len(steps)} {sum(len(name) + len(value) for name, value in steps.items())} {job.requeued}"
