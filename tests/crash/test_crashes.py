"""Processes are killed, suspended and ended at any time. Every acknowledged job runs and ends once.

These tests demand that processes die at certain places, and that calls meet a failover. On a busy machine that is rare,
so each of them runs alone. The tests of the other files may run two at a time.
"""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async._internal import failpoints
from tests.crash.marks import bounded
from tests.crash.report import Row, render
from tests.crash.roles import ELSEWHERE, POINTS
from tests.crash.scenarios import (
    DEFECTIVE,
    FAILOVERS,
    LIMIT_STRESS,
    POISON,
    RECOVERY,
    RESTARTS,
    SHUTDOWNS,
    SMALL_STRESS,
    STRESS,
    UNFENCED,
    Scenario,
)

pytestmark = pytest.mark.crash


@bounded(STRESS)
def test_every_job_ends_once_when_workers_die_everywhere(seed: int) -> None:
    outcome = STRESS.run(seed)
    assert outcome.faults() == [], outcome.line
    assert outcome.kills >= STRESS.size.kills
    assert outcome.zombies >= STRESS.size.zombies
    assert outcome.jobs >= STRESS.size.jobs


def test_the_stress_run_passes_every_failpoint() -> None:
    assert set(POINTS) > {name for name in failpoints.NAMES if not name.startswith(ELSEWHERE)}


@bounded(UNFENCED)
def test_the_checks_detect_disabled_fencing(seed: int) -> None:
    outcome = UNFENCED.run(seed)
    assert outcome.broken.get("doubled", 0) > 0, outcome.line
    assert outcome.broken.get("fence", 0) > 0, outcome.line
    assert outcome.broken.get("ends", 0) > 0, outcome.line


@bounded(SMALL_STRESS)
def test_a_stress_run_of_the_same_size_with_fencing_breaks_nothing(seed: int) -> None:
    outcome = SMALL_STRESS.run(seed)
    assert outcome.broken == {}, f"{outcome.line}\n{outcome.shown}"
    assert outcome.refused > 0, outcome.line


@bounded(LIMIT_STRESS)
def test_no_limit_is_exceeded_and_no_key_loses_its_order(seed: int) -> None:
    outcome = LIMIT_STRESS.run(seed)
    assert outcome.faults() == [], outcome.line
    assert outcome.kills >= LIMIT_STRESS.size.kills
    assert outcome.zombies >= LIMIT_STRESS.size.zombies
    assert outcome.jobs >= LIMIT_STRESS.size.jobs


ONE_MORE = DEFECTIVE["a key exceeds its concurrency by one"]


@bounded(ONE_MORE)
def test_the_check_of_the_limits_detects_a_library_that_exceeds_a_concurrency(seed: int) -> None:
    outcome = ONE_MORE.run(seed)
    assert outcome.broken.get("concurrency", 0) > 0, outcome.line


@bounded(POISON)
def test_jobs_that_kill_their_worker_fail_after_their_stalls_and_no_other_job_fails(seed: int) -> None:
    outcome = POISON.run(seed)
    assert outcome.faults() == [], outcome.line


@bounded(RESTARTS)
def test_a_killed_server_restarts_with_every_acknowledged_job(seed: int) -> None:
    outcome = RESTARTS.run(seed)
    assert outcome.faults() == [], outcome.line


@bounded(SHUTDOWNS)
def test_sigterm_ends_a_worker_in_time_and_its_jobs_wait_again_soon(seed: int) -> None:
    outcome = SHUTDOWNS.run(seed)
    assert outcome.faults() == [], outcome.line


@bounded(RECOVERY)
def test_jobs_of_a_killed_worker_run_again_within_a_second_after_its_lease(seed: int) -> None:
    outcome = RECOVERY.run(seed)
    assert outcome.faults() == [], outcome.line


@pytest.mark.parametrize("trial", [pytest.param(one, id=one.name, marks=bounded(one)) for one in FAILOVERS])
def test_jobs_survive_failovers(trial: Scenario[Any], seed: int) -> None:
    outcome = trial.run(seed)
    assert outcome.faults() == [], outcome.line


def test_the_report_shows_figures_faults_and_failpoints() -> None:
    rows = [Row("holds", "0 lost", "12 kills, 0 lost", []), Row("breaks", "1 s", "2 s", ["too late | by 1 s"])]
    text = render(rows, {"run.before_handler": 1_234})
    assert "| holds | 0 lost | 12 kills, 0 lost | pass |\n" in text
    assert "| breaks | 1 s | 2 s | **FAIL**: too late \\| by 1 s |\n" in text
    assert "| `run.before_handler` | 1,234 |\n" in text
