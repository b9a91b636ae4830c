"""The flags of structures: a queue of an older version, a flag that is missing, and the cleanup of flags."""

from __future__ import annotations

from collections.abc import Callable

import msgpack
import pytest

from glidemq_async.functions import loader
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.calling import RequestChannel
from tests.model.choices import START_MS
from tests.model.driver import BASE, Driver, run

META = f"{BASE}:meta2"
DELAYED, LIFO, COMPACT = b"f", b"g", b"~"
Claim = Callable[[], list[str]]


@pytest.fixture
def claim(driver: Driver) -> Claim:
    """Claim as a worker does, and return the ids."""
    load(driver)
    driver.reset(START_MS)
    channel = RequestChannel("w")

    def claim_one() -> list[str]:
        request = driver.functions.settle.request(channel, "w", 1, 30_000, subscribed=True)
        return [job.id for job in run(driver.functions.settle.send(request)).jobs]

    return claim_one


def load(driver: Driver) -> None:
    driver.load(loader.source(testing=True))
    driver.set_clock(START_MS)


def add(driver: Driver, job_id: str = "own", **extra: object) -> str:
    return run(driver.functions.add.jobs([AddRequest(job_id, "n", b"", b"", msgpack.packb(extra))])).ids[0]


def sweep(driver: Driver) -> None:
    assert run(driver.functions.stalled.sweep(1, 0, 90_000, resume=False))


def reopen(driver: Driver) -> None:
    run(driver.functions.queue.open(None))


def flags(driver: Driver) -> bytes | None:
    found = driver.wire.send("HGET", META, "features")
    assert found is None or isinstance(found, bytes)
    return found


def test_a_new_queue_has_no_flag_and_an_add_sets_the_one_it_needs(driver: Driver, claim: Claim) -> None:
    assert flags(driver) == b""
    add(driver, lifo=True)
    assert flags(driver) == LIFO
    assert claim()


def test_jobs_of_an_older_version_are_found_before_and_after_the_queue_is_opened(driver: Driver, claim: Claim) -> None:
    ids = [add(driver, "a", lifo=True), add(driver, "b", lifo=True)]
    driver.wire.send("HDEL", META, "features")
    assert claim() == ids[1:]
    assert flags(driver) is None
    reopen(driver)
    assert flags(driver) == LIFO
    assert claim() == ids[:1]


@pytest.mark.parametrize("repair", [reopen, sweep])
def test_a_missing_flag_is_found_by_the_check_and_repaired(
    driver: Driver, claim: Claim, repair: Callable[[Driver], None]
) -> None:
    job_id = add(driver, lifo=True)
    driver.wire.send("HSET", META, "features", "")
    assert claim() == []
    found = run(driver.functions.check_marks.queue())
    assert [(finding.invariant, finding.subject) for finding in found] == [("I13", "lifo")]
    repair(driver)
    assert run(driver.functions.check_marks.queue()) == []
    assert claim() == [job_id]


def test_a_compact_job_is_claimed_without_the_flag_of_its_structure(driver: Driver, claim: Claim) -> None:
    job_id = add(driver, "", lifo=True)
    flagged = flags(driver)
    assert flagged is not None
    assert sorted(flagged) == sorted(LIFO + COMPACT)
    driver.wire.send("HSET", META, "features", LIFO)
    assert claim() == [job_id]
    reopen(driver)
    assert run(driver.functions.check_marks.queue()) == []


def test_flags_are_not_trusted_after_the_library_was_replaced(driver: Driver, claim: Claim) -> None:
    """Another version of the library may have stored jobs without setting flags."""
    job_id = add(driver, lifo=True)
    driver.wire.send("HSET", META, "features", "")
    load(driver)
    assert claim() == [job_id]


def test_a_sweep_removes_the_flags_of_structures_that_are_gone(driver: Driver, claim: Claim) -> None:
    add(driver, "a", lifo=True)
    add(driver, "b", delay=60_000)
    assert claim()
    assert flags(driver) == LIFO + DELAYED
    sweep(driver)
    assert flags(driver) == DELAYED


def test_flags_of_later_versions_are_ignored(driver: Driver, claim: Claim) -> None:
    job_id = add(driver, lifo=True)
    driver.wire.send("HSET", META, "features", b"z\x7f\xff" + LIFO)
    assert claim() == [job_id]
