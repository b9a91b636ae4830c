"""The arguments in which a worker sends completed runs to the server."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from glidemq_async.functions.calling import RequestChannel
from glidemq_async.functions.outcomes import Completed, Failed, Retention
from glidemq_async.functions.settle import SettleRequest

HEAD = ("w", 1, "w", 0, 1_000, "", "0 0")
DONE = Completed(b"\xc0")


@pytest.fixture
def request_of_worker() -> SettleRequest:
    return SettleRequest(RequestChannel("w"), 1, HEAD, "")


def groups_of(request: SettleRequest) -> Sequence[object]:
    """Return the arguments of the groups."""
    return request.args[len(HEAD) + 1 : -1]


def test_runs_of_one_claim_are_sent_with_their_start(request_of_worker: SettleRequest) -> None:
    for number in range(3):
        request_of_worker.settle(f"{number}", f"l7-{number}", None, DONE, claimed_at=1_000)
    assert groups_of(request_of_worker) == [1, "l1000", "", 3, "7-0l 0", "7-1l 1", "7-2l 2", "0", "1", "2", 1, b"\xc0"]


@pytest.mark.parametrize("starts", [(1_000, 1_001), (1_000, None), (None, 1_000), (None, None)])
def test_runs_that_began_at_different_times_are_one_group_without_a_start(
    request_of_worker: SettleRequest, starts: tuple[int | None, ...]
) -> None:
    for number, start in enumerate(starts):
        request_of_worker.settle(f"{number}", f"l7-{number}", None, DONE, claimed_at=start)
    assert groups_of(request_of_worker) == [1, "l", "", 2, "7-0l 0", "7-1l 1", "0", "1", 1, b"\xc0"]


def test_keys_follow_the_ids_of_keyed_jobs(request_of_worker: SettleRequest) -> None:
    for number, result in enumerate([b"\x01", b"\x02"]):
        request_of_worker.settle(f"{number}", f"k7-{number}", f"key{number}", Completed(result), claimed_at=1_000)
    members = ["7-0k 0\x1fkey0", "7-1k 1\x1fkey1"]
    expected = [1, "k1000", "", 2, *members, "0", "1", "key0", "key1", 2, b"\x01", b"\x02"]
    assert groups_of(request_of_worker) == expected


def test_refusals_are_returned_by_the_order_of_the_runs(request_of_worker: SettleRequest) -> None:
    request_of_worker.settle("1", "l7-1", None, DONE, claimed_at=1_000)
    request_of_worker.settle("2", "l7-2", None, Failed(b"", "unrecoverable", "broken"))
    request_of_worker.settle("3", "k7-3", "key", DONE, claimed_at=1_000)
    request_of_worker.settle("4", "l7-4", None, Completed(b"\xc0", Retention(5)), claimed_at=1_000)
    request_of_worker.settle("5", "l7-5", None, DONE, claimed_at=1_000)
    # The groups are 1 and 5, 3, and 4. The failed run follows them.
    assert request_of_worker.by_run({1: "stale", 2: "missing", 4: "stale"}) == {4: "stale", 2: "missing", 1: "stale"}


SHORT_HEAD = ("w", 1, "w", 5, 1_000, "pg", "12 0")


def one_run_of(
    head: tuple[str, int, str, int, int, str, str] = SHORT_HEAD, outcome: Completed = DONE, *, is_direct: bool = False
) -> SettleRequest:
    """Return a request with one completed run of a plain job."""
    request = SettleRequest(RequestChannel("w"), 1, head, "mark", is_direct)
    request.settle("7", "p7-1000", None, outcome, plain_since=1_000)
    return request


def test_a_call_with_one_plain_run_has_the_short_form() -> None:
    assert one_run_of().args == ["w", 1, "5 1000 pg mark", "12", 1_000, "7-1000", b"\xc0"]
    uniform = SettleRequest(RequestChannel("w"), 1, SHORT_HEAD, "mark")
    uniform.settle_all(["7-1000"], DONE, 1_000)
    assert uniform.args == one_run_of().args


@pytest.mark.parametrize(
    "request_",
    [
        one_run_of(("w", 1, "w", 0, 1_000, "pg", "12 0")),
        one_run_of(("w", 1, "w", 5, 1_000, "epg", "12 0")),
        one_run_of(("w", 1, "w", 5, 1_000, "pg", "12 3")),
        one_run_of(("channel", 1, "w", 5, 1_000, "pg", "12 0")),
        one_run_of(outcome=Completed(b"\xc0", Retention(5))),
        one_run_of(is_direct=True),
    ],
    ids=["no slots", "echo", "a failed run", "another channel", "retention", "direct"],
)
def test_an_unusual_call_with_one_plain_run_has_the_long_form(request_: SettleRequest) -> None:
    assert not request_.is_short
    assert len(request_.args) == 16


def test_other_runs_have_the_long_form() -> None:
    several = one_run_of()
    several.settle("8", "p8-1000", None, DONE, plain_since=1_000)
    assert not several.is_short
    other = SettleRequest(RequestChannel("w"), 1, SHORT_HEAD, "mark")
    other.settle("7", "l7-1", None, DONE, claimed_at=1_000)
    assert not other.is_short
