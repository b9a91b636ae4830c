"""Violations that a trial must detect: lost jobs, reused ids, failed jobs, outcomes of another job."""

from __future__ import annotations

import random

from tests.crash.checker import DELAYED_AGAIN, GIVEN_UP, FinalState, JobEvents, Stored, violations
from tests.crash.clocks import distances
from tests.crash.journal import History, Line
from tests.crash.replay import Event
from tests.crash.trial import Evidence, count_events, failures, losses


def stored(name: str, state: str = "completed", reason: str | None = None) -> Stored:
    return Stored(state, 1, 0, 1 if state == "completed" else None, reason, name)


def evidence(ended: dict[str, Stored], *lines: str) -> Evidence:
    texts = (text.split() for text in lines)
    return Evidence([Line(kind, 1, 0.0, words) for kind, *words in texts], {}, FinalState(ended))


def test_a_missing_job_is_lost() -> None:
    found = list(losses(evidence({"1": stored("10")}, "added 1 10", "added 2 11")))
    assert [(one.kind, one.job) for one in found] == [("lost", "2")]


def test_a_job_whose_id_belongs_to_another_job_is_lost() -> None:
    found = list(losses(evidence({"1": stored("12")}, "added 1 10", "added 1 12")))
    assert [one.kind for one in found] == ["lost"]
    assert "job 10" in found[0].seen


def test_a_job_that_stalled_too_often_is_a_failure_but_an_expired_one_is_not() -> None:
    ended = {"1": stored("10", "failed", "stalled"), "2": stored("11", "failed", "expired")}
    assert [(one.kind, one.job) for one in failures(evidence(ended))] == [("failed", "1")]


def test_an_outcome_of_the_previous_job_of_an_id_is_detected() -> None:
    found = list(failures(evidence({"1": stored("12")}, "completed 1 1 10", "completed 1 1 12")))
    assert [(one.kind, one.job) for one in found] == [("strange", "1")]


def test_delays_of_handlers_and_failures_by_the_server_are_counted_separately() -> None:
    kinds = ["added", "delayed", "waiting", "active", "delayed", "waiting", "active", "stalled", "waiting", "failed"]
    counts = count_events(Event(kind, "1", 0) for kind in kinds)["1"]
    assert (counts[DELAYED_AGAIN], counts[GIVEN_UP], counts["delayed"]) == (1, 1, 2)
    assert count_events([Event("active", "1", 0), Event("failed", "1", 1)])["1"] == JobEvents(active=1, failed=1)


def test_only_a_revoked_job_may_end_after_a_claim_without_a_run() -> None:
    events = {job: JobEvents(added=1, active=1, failed=1) for job in ("1", "2")}
    ended = {"1": stored("10", "failed", "revoked"), "2": stored("11", "failed", "error")}
    found = violations(History(), events, FinalState(ended))
    assert [(one.kind, one.job) for one in found] == [("not run", "2")]


def test_the_clock_jumps_forward_and_back_with_every_seed() -> None:
    for seed in range(200):
        jumps = distances(random.Random(seed), 5)
        assert len(jumps) == 5
        assert min(jumps) < 0 < max(jumps)
