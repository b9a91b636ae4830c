"""The pool that keeps producers by their settings."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glidemq_async import JobOptions, JsonSerializer, MsgpackSerializer, Producer, ServerlessPool, serverless_pool
from glidemq_async.storage import Storage
from tests.support.helpers import AnyQueue

URL = "redis://user:secret@a:1/0"


def test_the_same_settings_give_the_same_producer() -> None:
    pool = ServerlessPool()
    first = pool.get_producer("emails", URL, timeout=5)
    assert isinstance(first, Producer)
    assert pool.get_producer("emails", URL, timeout=5) is first
    assert pool.size == 1
    assert repr(pool) == "<ServerlessPool of 1 producers>"


def test_each_setting_makes_a_difference() -> None:
    pool, one, other = ServerlessPool(), JsonSerializer(), MsgpackSerializer()
    found = [
        pool.get_producer("emails", URL),
        pool.get_producer("reports", URL),
        pool.get_producer("emails", "redis://user:other@a:1/0"),
        pool.get_producer("emails", "redis://user:secret@a:1/1"),
        pool.get_producer("emails", "redis://user:secret@b:1/0"),
        pool.get_producer("emails", URL, prefix="other"),
        pool.get_producer("emails", URL, timeout=5),
        pool.get_producer("emails", URL, serializer=one),
        pool.get_producer("emails", URL, serializer=other),
        pool.get_producer("emails", URL, default_options=JobOptions(attempts=3)),
        pool.get_producer("emails", URL, default_options=JobOptions(attempts=4)),
        pool.get_producer("emails", URL, ids="uuid7"),
    ]
    assert len({id(producer) for producer in found}) == len(found) == pool.size
    assert pool.get_producer("emails", URL, serializer=one) is found[7]
    assert pool.get_producer("emails", URL, default_options=JobOptions(attempts=3)) is found[9]


def test_the_order_of_hosts_and_options_makes_no_difference() -> None:
    pool = ServerlessPool()
    one = pool.get_producer("emails", "redis+cluster://u:p@a:1,b:2?timeout=5&socket_timeout=3")
    assert pool.get_producer("emails", "redis+cluster://u:p@b:2,a:1?socket_timeout=3&timeout=5") is one


def test_the_environment_names_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ServerlessPool()
    monkeypatch.setenv("GLIDEMQ_URL", URL)
    one = pool.get_producer("emails")
    assert pool.get_producer("emails", URL) is one
    monkeypatch.setenv("GLIDEMQ_URL", "redis://b:1")
    assert pool.get_producer("emails") is not one


def test_a_fingerprint_shows_no_credentials() -> None:
    pool = ServerlessPool()
    text = pool.fingerprint("emails", URL)
    assert len(text) == 32
    assert set(text) <= set("0123456789abcdef")
    assert pool.fingerprint("emails", URL) == text
    assert pool.fingerprint("emails", "redis://user:guess@a:1/0") != text
    # Whoever finds a fingerprint in a log cannot verify a guessed password with it.
    assert ServerlessPool().fingerprint("emails", URL) != text
    assert pool.size == 0


def test_bad_settings_are_refused_and_not_kept() -> None:
    pool = ServerlessPool()
    with pytest.raises(ValueError, match="not a storage URL"):
        pool.get_producer("emails", "http://a")
    with pytest.raises(TypeError, match="'mode'"):
        pool.get_producer("emails", URL, mode="keyed")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert pool.size == 0


async def test_close_all_closes_each_producer_and_the_pool_can_be_used_again(
    queue: AnyQueue, storage: Storage, name: str
) -> None:
    pool = ServerlessPool()
    producers = [pool.get_producer(name, storage), pool.get_producer(f"{name}-2", "redis://127.0.0.1:1")]
    await asyncio.gather(*(pool.get_producer(name, storage).add("n", number) for number in range(3)))
    await pool.close_all()
    assert (pool.size, [producer.is_closed for producer in producers]) == (0, [True, True])
    await pool.close_all()
    again = pool.get_producer(name, storage)
    assert again is not producers[0]
    assert (await again.add("n", 4)).id == "4"
    assert await queue.count() == 4


async def test_a_closed_producer_is_replaced(storage: Storage, name: str) -> None:
    pool = ServerlessPool()
    first: Producer[Any] = pool.get_producer(name, storage)
    await first.close()
    second = pool.get_producer(name, storage)
    assert second is not first
    assert pool.size == 1


def test_the_process_has_one_pool() -> None:
    assert isinstance(serverless_pool, ServerlessPool)
