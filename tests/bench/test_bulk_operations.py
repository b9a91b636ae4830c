"""A bulk operation under load keeps its promises although its runner is killed."""

from __future__ import annotations

import pytest

from benchmarks.bulk_operations import ACTIONS, Outcome, change_under_load, report_of
from tests.support.stores import RunningStore


def check(outcome: Outcome, count: int) -> None:
    operation = outcome.operation
    assert operation.state == "done"
    assert outcome.previewed == count
    assert operation.done + sum(operation.refused.values()) == count
    assert operation.refused.keys() <= {"removed"}
    # A runner may be killed after it has changed a job. If it is removed after its run, the next runner refuses it.
    assert len(outcome.runs) <= operation.done + operation.refused.get("removed", 0)
    assert set(outcome.runs.values()) == {1}
    assert outcome.later > 0
    assert outcome.later_changed == 0
    assert f"{count:,}" in report_of([outcome])


@pytest.mark.untidy
@pytest.mark.only_on("redis7")
@pytest.mark.parametrize("action", ACTIONS)
async def test_a_killed_runner_loses_and_doubles_nothing(store: RunningStore, storage: object, action: str) -> None:
    check(await change_under_load(store.url, action, 2_000, 2), 2_000)


@pytest.mark.slow
@pytest.mark.untidy
@pytest.mark.only_on("redis7")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("action", ACTIONS)
async def test_100_000_jobs_under_load_with_two_kills(store: RunningStore, storage: object, action: str) -> None:
    check(await change_under_load(store.url, action, 100_000, 2), 100_000)
