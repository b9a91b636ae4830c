"""Codecs in real queues: data, results and progress, dead letters, schedulers and clients with different codecs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from glidemq_async import (
    Codec,
    CodecError,
    Compression,
    Deduplication,
    Encryption,
    Execution,
    JsonSerializer,
    PayloadTooLarge,
    Queue,
    Signing,
)
from glidemq_async.storage import Storage
from tests.support.dead_letters import hopeless
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, echo, ended, soon, worker_of
from tests.support.stores import RunningStore

OLD, NEW = b"-----old-secret-32-bytes-key----", b"-----new-secret-32-bytes-key----"
SEALED: Sequence[Codec] = [Compression("zstd", threshold=100), Encryption({"new": NEW}), Signing({"sign": OLD})]
WORD = "confidential"


def open_queue(name: str, storage: Storage, codecs: Sequence[Codec] = SEALED, **options: Any) -> AnyQueue:
    return Queue[Any, Any](name, storage, codecs=codecs, **options)


@pytest.fixture
async def sealed(storage: Storage, name: str) -> AsyncIterator[AnyQueue]:
    async with open_queue(name, storage) as opened:
        yield opened


async def stored(store: RunningStore) -> bytes:
    """Return all data of the server."""
    found = b""
    for key in await store.keys():
        kind = await store.ask("TYPE", key)
        if kind == b"hash":
            found += repr(await store.ask("HGETALL", key)).encode()
        elif kind == b"stream":
            found += repr(await store.ask("XRANGE", key, "-", "+")).encode()
        elif kind == b"string":
            found += repr(await store.ask("GET", key)).encode()
    return found


async def test_no_part_of_a_payload_is_stored_in_clear_text(sealed: AnyQueue, store: RunningStore) -> None:
    async def work(job: AnyJob) -> Any:
        assert job.data == {"word": WORD}
        await job.update_data({"word": WORD * 2})
        assert job.data == {"word": WORD * 2}
        await job.update_progress([WORD])
        assert job.progress == [WORD]
        return {"result": WORD}

    async with worker_of(sealed, work, codecs=SEALED):
        variants: list[dict[str, Any]] = [{}, {"job_id": "mine"}, {"delay": 0.05, "key": "k"}]
        for options in variants:
            job = await ended(await sealed.add("n", {"word": WORD}, **options))
            assert (job.state, job.return_value) == ("completed", {"result": WORD})
            assert (job.data, job.progress) == ({"word": WORD * 2}, [WORD])
        assert await sealed.add_and_wait("n", {"word": WORD}, wait_timeout=10) == {"result": WORD}
    everything = await stored(store)
    assert b"mine" in everything
    assert WORD.encode() not in everything
    [kept] = await sealed.search_jobs(name="n", data={"word": WORD * 2}, limit=1)
    assert kept.data == {"word": WORD * 2}
    [bare] = await sealed.get_jobs("completed", 0, 0, with_data=False)
    assert (bare.data, bare.return_value) == (None, {"result": WORD})


async def test_all_kinds_of_values_return_from_a_worker(sealed: AnyQueue) -> None:
    values = [
        datetime(2026, 3, 29, 1, 2, 3, 4, tzinfo=UTC),
        date(2026, 3, 29),
        timedelta(days=-1, microseconds=5),
        Decimal("1.50"),
        UUID(int=7),
        b"\xc1\x00",
        {UUID(int=8): 2**64 - 1},
    ]
    async with worker_of(sealed, echo, codecs=SEALED):
        assert await sealed.add_and_wait("n", values, wait_timeout=10) == values


async def test_a_replaced_result_is_sealed_too(sealed: AnyQueue, store: RunningStore) -> None:
    def review(execution: Execution) -> None:
        execution.result = WORD

    async with worker_of(sealed, echo, codecs=SEALED, after_execution=review):
        assert await sealed.add_and_wait("n", 1, wait_timeout=10) == WORD
    assert WORD.encode() not in await stored(store)


async def test_jobs_that_queues_add_by_themselves_are_sealed(sealed: AnyQueue) -> None:
    async with worker_of(sealed, echo, codecs=SEALED) as worker:
        done = Heard(worker, "completed")
        scheduler = await sealed.upsert_job_scheduler("s", every=0.05, limit=1, name="tick", data=WORD)
        assert scheduler.data == WORD
        assert (await done.next())[1] == WORD
        again = await sealed.get_job_scheduler("s")
        assert again is not None
        assert again.data == WORD
        assert await (await sealed.trigger_job_scheduler("s")).result(10) == WORD


async def test_an_add_that_replaces_another_one_is_sealed(sealed: AnyQueue) -> None:
    deduplication = Deduplication("d", 0.1, "debounce")
    await sealed.add("first", 1, job_id="one", deduplication=deduplication)
    last = await sealed.add("second", 2, job_id="two", deduplication=deduplication)
    async with worker_of(sealed, echo, codecs=SEALED):
        assert await last.result(10) == 2


async def test_dead_letters_stay_readable_where_they_are_and_where_they_return_to(
    sealed: AnyQueue, storage: Storage, store: RunningStore
) -> None:
    async with open_queue(f"{sealed.name}-dead", storage) as dead:
        for job_id in ("x/y", None):
            gate = Gate()
            async with (
                worker_of(sealed, hopeless, codecs=SEALED, dead_letter_queue=dead.name),
                worker_of(dead, gate, codecs=SEALED),
            ):
                job = await sealed.add("n", WORD, job_id=job_id)
                dead_letter = await gate.running()
                assert dead_letter.data == WORD
                assert dead_letter.dead_letter is not None
                assert dead_letter.dead_letter.job_id == job.id
                await dead_letter.update_data(WORD * 2)
                assert dead_letter.data == WORD * 2
                await dead_letter.update_progress(1)
                gate.release()
                assert await dead_letter.result(10) == WORD * 2
                [kept] = await dead.get_jobs("completed", 0, 0)
                assert (kept.data, kept.progress) == (WORD * 2, 1)
        # A dead letter that was changed, and returns to its queue.
        async with worker_of(sealed, hopeless, codecs=SEALED, dead_letter_queue=dead.name):
            job = await ended(await sealed.add("n", WORD))
        await job.remove()
        gate = Gate()
        async with worker_of(dead, gate, codecs=SEALED, shutdown_timeout=0):
            await (await gate.running()).update_data("mended")
            await dead.pause()
        await dead.resume()
        assert await dead.replay_dead_letter_jobs() == 1
        async with worker_of(sealed, echo, codecs=SEALED):
            back = await sealed.get_job(job.id)
            assert back is not None
            assert await back.result(10) == "mended"


async def test_a_payload_that_cannot_be_decoded_fails_its_job_as_malformed(sealed: AnyQueue, storage: Storage) -> None:
    reader = [SEALED[0], Encryption({"new": OLD}), SEALED[2]]
    async with worker_of(sealed, echo, codecs=reader) as worker:
        failures = Heard(worker, "failed")
        job = await ended(await sealed.add("n", WORD, attempts=3))
        _, error = await failures.next()
    assert (job.state, job.failure_cause, job.attempts_made) == ("failed", "malformed", 1)
    assert isinstance(error, CodecError)
    assert job.failed_reason is not None
    assert f"data of job {job.id} cannot be decoded: its encryption does not fit" in job.failed_reason
    shown = f"{job.failed_reason} {job.stacktrace}"
    assert "secret" not in shown
    assert WORD not in shown
    assert [dead_letter.id for dead_letter in await sealed.get_dead_letter_jobs(cause="malformed")] == [job.id]


@pytest.mark.parametrize("codecs", [(), [Compression()]])
async def test_a_worker_without_the_codecs_reports_it(sealed: AnyQueue, codecs: Sequence[Codec]) -> None:
    async with worker_of(sealed, echo, codecs=codecs):
        job = await ended(await sealed.add("n", WORD))
    assert job.failure_cause == "malformed"
    assert "was written with Signing: give this queue or worker the codecs" in (job.failed_reason or "")


async def test_stored_payloads_cannot_be_exchanged(sealed: AnyQueue, store: RunningStore) -> None:
    base = f"glide:{{{sealed.name}}}:job:"
    await sealed.pause()
    pay = await sealed.add("pay", {"amount": 1}, job_id="pay")
    rich = await sealed.add("pay", {"amount": 1_000_000}, job_id="rich")
    note = await sealed.add("note", {"amount": 5}, job_id="note")
    for job, other in ((pay, rich), (note, rich)):
        data = await store.ask("HGET", base + other.id, "data")
        assert isinstance(data, bytes)
        await store.ask("HSET", base + job.id, "data", data)
    await sealed.resume()
    async with worker_of(sealed, echo, codecs=SEALED):
        for job in (pay, note):
            await ended(job)
            assert (job.state, job.failure_cause) == ("failed", "malformed")
        assert await rich.result(10) == {"amount": 1_000_000}
    # The result of one job cannot be shown as the result of another one either.
    result = await store.ask("HGET", base + rich.id, "result")
    assert isinstance(result, bytes)
    await store.ask("HSET", base + pay.id, "place", "completed x", "result", result)
    forged = await sealed.get_job(pay.id)
    assert forged is not None
    with pytest.raises(CodecError, match=f"result of job {pay.id} cannot be decoded"):
        _ = forged.return_value
    await store.ask("HSET", base + pay.id, "place", "failed ")


async def test_clients_change_to_encryption_step_by_step(storage: Storage, name: str) -> None:
    plain: Sequence[Codec] = ()
    reading: Sequence[Codec] = [Encryption({"old": OLD}, allow_plain=True)]
    ready: Sequence[Codec] = [Encryption({"old": OLD, "new": NEW}, allow_plain=True)]
    rotating: Sequence[Codec] = [Encryption({"new": NEW, "old": OLD})]
    async with open_queue(name, storage, plain) as writer, worker_of(writer, echo, codecs=reading):
        # Workers change first: every client that has the codec can read their results.
        job = await writer.add("n", 1)
        with pytest.raises(CodecError, match="was written with Encryption"):
            await job.result(10)
    async with open_queue(name, storage, ready) as both, worker_of(both, echo, codecs=rotating):
        assert await (await _job(both, job.id)).result(10) == 1
        assert await both.add_and_wait("n", 2, wait_timeout=10) == 2
    async with open_queue(name, storage, rotating) as last, worker_of(last, echo, codecs=rotating):
        assert await last.add_and_wait("n", 3, wait_timeout=10) == 3
        unprotected = await _job(last, job.id)
        with pytest.raises(CodecError, match="not protected by Encryption"):
            _ = unprotected.data


async def _job(queue: AnyQueue, job_id: str) -> AnyJob:
    found = await queue.get_job(job_id)
    assert found is not None
    return found


async def test_limits_apply_to_the_encoded_payload(storage: Storage, name: str) -> None:
    codecs = [Compression("gzip", max_size=50_000)]
    async with open_queue(name, storage, codecs, payload_limit=1_000, serializer=JsonSerializer()) as queue:
        options: dict[str, Any] = {"codecs": codecs, "payload_limit": 1_000, "serializer": JsonSerializer()}
        with pytest.raises(PayloadTooLarge, match="before compression"):
            await queue.add("n", "a" * 60_000)
        async with worker_of(queue, echo, **options):
            assert await queue.add_and_wait("n", "a" * 40_000, wait_timeout=10) == "a" * 40_000

        async def grow(job: AnyJob) -> str:
            return "a" * 60_000

        async with worker_of(queue, grow, **options):
            job = await ended(await queue.add("n"))
            assert (job.state, job.failure_cause) == ("failed", "oversize")


async def test_a_batch_can_have_sealed_jobs(sealed: AnyQueue) -> None:
    async with worker_of(sealed, echo, codecs=SEALED, concurrency=10):
        jobs = await sealed.add_bulk([("n", number) for number in range(50)])
        assert [await soon(job.result()) for job in jobs] == list(range(50))


def test_signed_json_stays_json() -> None:
    # A reader in another language has to know the format: one byte, one letter, flags, key id, 32 bytes, then the text.
    from glidemq_async import PayloadContext

    content = Signing({"k": OLD}).encode(b'{"a":1}', PayloadContext("glide:{q}", "data", "n", ""))
    assert content[:3] == b"\x00\x01k"
    assert json.loads(content[3 + 32 :]) == {"a": 1}
