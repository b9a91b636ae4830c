"""The choice between a direct claim and an ordinary one."""

from __future__ import annotations

from glidemq_async.functions.claimed_jobs import ClaimedJob
from glidemq_async.worker.direct_claims import FEWEST, REFUSED_CALLS, DirectClaims


def claimed(number: int, *, is_plain: bool = True) -> list[ClaimedJob]:
    return [ClaimedJob("1", "p1-1", 1, "n", b"", b"", None, is_plain)] * number


def test_a_claim_is_direct_after_a_large_one() -> None:
    claims = DirectClaims(are_possible=True)
    assert not claims.begin()
    claims.note_reply(claimed(FEWEST - 1), was_refused=False)
    assert not claims.begin()
    claims.note_reply(claimed(FEWEST), was_refused=False)
    assert claims.begin()
    assert claims.begin()


def test_a_claim_is_direct_if_the_last_claimed_job_was_plain() -> None:
    claims = DirectClaims(are_possible=True)
    claims.note_reply(claimed(FEWEST) + claimed(1, is_plain=False), was_refused=False)
    assert not claims.begin()
    claims.note_reply(claimed(1, is_plain=False) + claimed(FEWEST), was_refused=False)
    assert claims.begin()


def test_a_refusal_is_remembered_for_some_calls() -> None:
    claims = DirectClaims(are_possible=True)
    claims.note_reply(claimed(FEWEST), was_refused=True)
    assert [claims.begin() for _ in range(REFUSED_CALLS + 1)] == [False] * REFUSED_CALLS + [True]


def test_a_storage_without_transactions_gets_no_direct_claim() -> None:
    claims = DirectClaims(are_possible=False)
    claims.note_reply(claimed(FEWEST), was_refused=False)
    assert not claims.begin()
