"""Processes are killed, stopped and ended at every moment; what was acknowledged is done, and ends once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from glidemq_async._internal import failpoints
from tests.crash.report import Row, render
from tests.crash.roles import POINTS
from tests.crash.scenarios import (
    DEFECTIVE,
    POISON,
    RECOVERY,
    RESTARTS,
    SHUTDOWNS,
    SKIRMISH,
    SQUALL,
    STORM,
    TRIALS,
    UNFENCED,
    Scenario,
)
from tests.crash.size import PATIENCE

pytestmark = pytest.mark.crash


def bounded(scenario: Scenario[Any]) -> pytest.MarkDecorator:
    """A limit beyond the scenario's own ones, which say more."""
    limit: float = scenario.size.seconds + 2 * PATIENCE
    return pytest.mark.timeout(limit)


@pytest.fixture
def seed() -> int:
    """Another one each time; a failure shows it with the scenario's line."""
    return random.SystemRandom().randrange(2**32)


@bounded(STORM)
def test_workers_die_everywhere_and_every_job_ends_once(seed: int) -> None:
    outcome = STORM.run(seed)
    assert outcome.faults() == [], outcome.line
    assert outcome.kills >= STORM.size.kills
    assert outcome.zombies >= STORM.size.zombies
    assert outcome.jobs >= STORM.size.jobs


def test_every_failpoint_is_part_of_the_storm() -> None:
    assert set(POINTS) > {name for name in failpoints.NAMES if not name.startswith("relay.")}


@bounded(UNFENCED)
def test_without_the_fence_zombies_end_jobs_twice_and_the_checks_say_so(seed: int) -> None:
    outcome = UNFENCED.run(seed)
    assert outcome.broken.get("doubled", 0) > 0, outcome.line
    assert outcome.broken.get("fence", 0) > 0, outcome.line
    assert outcome.broken.get("ends", 0) > 0, outcome.line


@bounded(SKIRMISH)
def test_with_the_fence_a_storm_of_the_same_size_breaks_nothing(seed: int) -> None:
    outcome = SKIRMISH.run(seed)
    assert outcome.broken == {}, f"{outcome.line}\n{outcome.shown}"
    assert outcome.refused > 0, outcome.line


@bounded(SQUALL)
def test_no_limit_is_exceeded_and_no_key_loses_its_order(seed: int) -> None:
    outcome = SQUALL.run(seed)
    assert outcome.faults() == [], outcome.line
    assert outcome.kills >= SQUALL.size.kills
    assert outcome.zombies >= SQUALL.size.zombies
    assert outcome.jobs >= SQUALL.size.jobs


ONE_MORE = DEFECTIVE["a key runs one more"]


@bounded(ONE_MORE)
def test_with_a_library_that_runs_one_more_of_a_key_the_proof_fails(seed: int) -> None:
    outcome = ONE_MORE.run(seed)
    assert outcome.broken.get("concurrency", 0) > 0, outcome.line


@bounded(POISON)
def test_poison_is_given_up_after_its_stalls_and_spares_its_neighbours(seed: int) -> None:
    outcome = POISON.run(seed)
    assert outcome.faults() == [], outcome.line


@bounded(RESTARTS)
def test_a_killed_server_comes_back_with_everything_acknowledged(seed: int) -> None:
    outcome = RESTARTS.run(seed)
    assert outcome.faults() == [], outcome.line


@bounded(SHUTDOWNS)
def test_sigterm_ends_a_worker_in_time_and_its_jobs_are_back_at_once(seed: int) -> None:
    outcome = SHUTDOWNS.run(seed)
    assert outcome.faults() == [], outcome.line


@bounded(RECOVERY)
def test_jobs_of_a_killed_worker_run_again_within_a_second_after_its_lease(seed: int) -> None:
    outcome = RECOVERY.run(seed)
    assert outcome.faults() == [], outcome.line


@pytest.mark.parametrize("trial", [pytest.param(one, id=one.name, marks=bounded(one)) for one in TRIALS])
def test_what_disturbs_the_server_or_its_link_loses_and_doubles_nothing(trial: Scenario[Any], seed: int) -> None:
    outcome = trial.run(seed)
    assert outcome.faults() == [], outcome.line


def test_the_report_shows_figures_faults_and_points() -> None:
    rows = [Row("holds", "0 lost", "12 kills, 0 lost", []), Row("breaks", "1 s", "2 s", ["too late | by 1 s"])]
    text = render(rows, {"run.before_handler": 1_234})
    assert "| holds | 0 lost | 12 kills, 0 lost | pass |\n" in text
    assert "| breaks | 1 s | 2 s | **FAIL**: too late \\| by 1 s |\n" in text
    assert "| `run.before_handler` | 1,234 |\n" in text
