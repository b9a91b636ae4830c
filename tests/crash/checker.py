"""Checks a crash run: compares the entries of the journal, the events and the stored data.

Each broken guarantee is a violation with a kind. A correct run has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from glidemq_async import Finding, Queue
from glidemq_async.stored.record import STATES, State
from tests.crash.journal import History
from tests.crash.roles import Payload, connect_to

#: A delay that a handler requested. Its event has the same kind as a delayed add (`delayed`), see replay.py.
DELAYED_AGAIN = "put off"
#: Counted by replay.py in addition to `failed`: the server ended a job that did not run.
GIVEN_UP = "given up"
ENDED: tuple[State, ...] = ("completed", "failed")
UNFINISHED: tuple[State, ...] = tuple(state for state in STATES if state not in ENDED)
#: The events that end a claim.
ENDS = ("completed", "failed", "retrying", "returned", "limited", DELAYED_AGAIN, "stalled")
SHOWN = 20
#: The outcomes that a worker may report after it was suspended past its lease or lost its server.
EXPECTED_ERRORS = ("LeaseLost", "StorageUnavailable")


class Stored(NamedTuple):
    """The stored data of an ended job. `result` is the fencing token of the run whose result was kept."""

    state: str
    fence: int
    stalls: int
    result: int | None
    reason: str | None
    name: str = ""


@dataclass
class FinalState:
    """The stored state of a queue at the end of a run."""

    ended: dict[str, Stored] = field(default_factory=dict[str, Stored])
    listed_twice: list[str] = field(default_factory=list[str])
    unfinished: dict[str, int] = field(default_factory=dict[str, int])
    findings: list[Finding] = field(default_factory=list[Finding])

    def add(self, other: FinalState) -> None:
        """Add the state of another queue, which has different job ids."""
        self.ended |= other.ended
        self.listed_twice += other.listed_twice
        self.unfinished |= other.unfinished
        self.findings += other.findings


async def read_final_state(url: str, queue_name: str) -> FinalState:
    """Read every ended job and the counts, and run the integrity check."""
    final_state = FinalState()
    async with connect_to(url) as storage, Queue[Payload, int](queue_name, storage) as queue:
        for state in ENDED:
            async for job in queue.iter_jobs(state):
                if job.id in final_state.ended:
                    final_state.listed_twice.append(job.id)
                final_state.ended[job.id] = Stored(
                    job.state, job.fence, job.stalled_count, job.return_value, job.failed_reason, job.name
                )
        counts = await queue.get_job_counts()
        final_state.unfinished = {state: counts[state] for state in UNFINISHED if counts[state]}
        final_state.findings = await queue.check()
    return final_state


class JobEvents(Counter[str]):
    """Count the events of each kind by job."""


def read_events(path: Path) -> dict[str, JobEvents]:
    """The events of a run by job."""
    found: dict[str, JobEvents] = {}
    with path.open() as lines:
        for text in lines:
            kind, job_id, *_ = text.split(" ", 2)
            found.setdefault(job_id, JobEvents())[kind] += 1
    return found


class Violation(NamedTuple):
    """A broken guarantee: its kind, the job, and what was observed."""

    kind: str
    job: str
    seen: str


def violations(history: History, events: dict[str, JobEvents], final_state: FinalState) -> list[Violation]:
    """Return every violation of a run; an empty list for a correct run."""
    kept = {job for job in history.added if not events.get(job, JobEvents())["removed"]}
    found = [Violation("lost", job, "was added, but is in no final state") for job in kept - final_state.ended.keys()]
    found += [Violation("doubled", job, "is in two final sets") for job in final_state.listed_twice]
    found += [Violation("left", state, f"{count} jobs") for state, count in final_state.unfinished.items()]
    found += [Violation("check", one.subject, f"{one.invariant} {one.message}") for one in final_state.findings]
    found += [Violation("error", "", text) for text in history.errors if not text.startswith(EXPECTED_ERRORS)]
    for job, stored in final_state.ended.items():
        finals, starts = history.finals.get(job, []), history.starts.get(job, [])
        found += _about_outcomes(job, stored, finals, events.get(job, JobEvents()))
        found += _about_runs(job, stored, starts, events.get(job, JobEvents()))
    return found


def _about_outcomes(job: str, stored: Stored, finals: list[tuple[str, int]], counts: JobEvents) -> Iterator[Violation]:
    """Check for one final state, one event about it, and at most one worker whose outcome was accepted."""
    if counts["completed"] + counts["failed"] != 1:
        yield Violation("doubled", job, f"{counts['completed']} completed and {counts['failed']} failed events")
    if counts[stored.state] != 1:
        yield Violation("doubled", job, f"is {stored.state}, but the events do not report that exactly once")
    if len(finals) > 1:
        yield Violation("doubled", job, f"the store accepted {finals}")
    for state, fence in finals:
        if (state, fence) != (stored.state, stored.fence):
            yield Violation("fence", job, f"accepted {state} of claim {fence}, stored {stored}")
    if stored.state == "completed" and stored.result != stored.fence:
        yield Violation("fence", job, f"the kept result is of claim {stored.result}, the last claim is {stored.fence}")


def _about_runs(job: str, stored: Stored, starts: list[int], counts: JobEvents) -> Iterator[Violation]:
    """Check that the job ran, that claims have consecutive fencing tokens and start at most once, and that each has one
    end.
    """
    # A worker that learns of a revocation before the first step of the run ends the claim without a run.
    if not starts and not counts[GIVEN_UP] and stored.reason != "revoked":
        yield Violation("not run", job, "ended without a run")
    if len(set(starts)) != len(starts) or max(starts, default=0) > stored.fence:
        yield Violation("fence", job, f"the claims {starts} were started, the last claim is {stored.fence}")
    if counts["active"] != stored.fence:
        yield Violation("fence", job, f"the events report {counts['active']} claims, the last claim is {stored.fence}")
    if counts["stalled"] != stored.stalls:
        yield Violation("stalls", job, f"the events report {counts['stalled']} stalls, the record has {stored.stalls}")
    by_server = bool(counts[GIVEN_UP]) or stored.reason == "stalled"
    ends = sum(counts[kind] for kind in ENDS) - by_server
    if ends != counts["active"]:
        yield Violation("ends", job, f"{counts['active']} claims had {ends} ends: {dict(counts)}")


def summarize(found: list[Violation]) -> dict[str, int]:
    """Count the violations of each kind."""
    return dict(Counter(one.kind for one in found))
