"""The runs of the jobs of one claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from glidemq_async.client.queue_client import QueueClient
from glidemq_async.functions.claimed_jobs import BYTES_OF_A_TIME, ClaimedJob, EntriesRead, EntryRow
from glidemq_async.jobs.snapshot import has_options, job_of_claim, jobs_of_entries
from glidemq_async.worker.runs import RELEASED, Run

_new: Final[Callable[[type[Run]], Run]] = object.__new__


class ClaimedRuns(NamedTuple):
    """The runs of one claim."""

    runs: list[Run]
    have_options: bool = True
    """False if `run_options` of each job returns only defaults."""
    are_alike: bool = False
    """True if all jobs have the same name and no options."""
    are_distinct: bool = False
    """True if no two runs have the same entry."""


def runs_of_claim(client: QueueClient, jobs: Sequence[ClaimedJob], claimed_at: int) -> ClaimedRuns:
    """Return the runs of claimed jobs. `claimed_at` is the server's time of the claim in ms."""
    if isinstance(jobs, EntriesRead):
        return _runs_of_entries(client, jobs.rows, claimed_at)
    runs: list[Run] = []
    for job_id, entry, fence, name, data, opts, history, is_plain in jobs:
        job = job_of_claim(client, job_id, entry, fence, name, data, opts, history, claimed_at)
        runs.append(Run(job, entry, bool(opts), claimed_at if is_plain else None))
    return ClaimedRuns(runs)


def run_of_entry(client: QueueClient, raw: bytes, name: bytes, data: bytes, claimed_at: int) -> Run:
    """Return the run of a plain job without options. `raw` is the id of its entry."""
    text = raw.decode()
    token = "p" + text
    named = name.decode(errors="replace")
    job = job_of_claim(client, text[:-BYTES_OF_A_TIME], token, 1, named, data, b"", None, claimed_at)
    return Run(job, token, False, claimed_at)


def _runs_of_entries(client: QueueClient, rows: Sequence[EntryRow], claimed_at: int) -> ClaimedRuns:
    jobs, tokens, have_options, have_one_name = jobs_of_entries(client, rows, claimed_at)
    runs: list[Run] = []
    new, kind = _new, Run
    for (raw, _), job, token in zip(rows, jobs, tokens, strict=True):
        # The attributes of `__init__`. A call of the class costs as much as all of them, and this runs for each job.
        run = new(kind)
        run.job = job
        run.entry = token
        run.raw = raw
        run.plain_since = claimed_at
        run.has_options = False
        run.options = run.task = run.value = None
        run.stop_reason = ""
        run.begun = False
        run.seconds = 0.0
        run.outcome = RELEASED
        runs.append(run)
    if have_options:
        for run in runs:
            run.has_options = has_options(run.job)
    return ClaimedRuns(runs, have_options, have_one_name and not have_options, are_distinct=True)
