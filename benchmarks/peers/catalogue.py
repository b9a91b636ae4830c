"""The measured queues: where each one comes from, and how it is measured in at most three sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.venvs import ROOT

MANY: Final = 20_000
FEWER: Final = 5_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """One queue. `name` is the module of its adapter, and `jobs` the number of jobs that it drains.

    `results` says where results are kept. `method` says what is set differently from the defaults.
    """

    name: str
    title: str
    package: str
    requirements: tuple[str, ...]
    results: str
    method: str
    jobs: int = FEWER


OURS: Final = Candidate(
    "glidemq",
    "glidemq_async",
    "glidemq-async",
    ("--editable", str(ROOT)),
    "on, with the last completed jobs",
    "A `Queue` and a `Worker` with default options.",
    MANY,
)
LOOP: Final = Candidate(
    "bare_loop",
    "bare loop",
    "redis",
    ("redis[hiredis]>=8.1,<9", "msgpack", "uvloop"),
    "off",
    "redis-py with XADD, XREADGROUP COUNT 100, and one XACK and one XDEL for each batch. "
    "It is not a queue: it has no recovery, retries or records.",
    MANY,
)
PEERS: Final = (
    Candidate(
        "taskiq",
        "taskiq",
        "taskiq",
        ("taskiq", "taskiq-redis"),
        "off",
        "`RedisStreamBroker`, which reads 100 entries in a call, and `run_receiver_task` with 100 tasks and 100 "
        "prefetched ones. It has no bulk add.",
    ),
    Candidate(
        "saq",
        "SAQ",
        "saq",
        ("saq[redis]", "typing-extensions"),
        "on, 10 minutes",
        "A Redis `Queue` with default options and a `Worker` with 100 slots. It has no bulk add. It imports "
        "typing-extensions without requiring it.",
    ),
    Candidate(
        "streaq",
        "streaQ",
        "streaq",
        ("streaq",),
        "on, 5 minutes",
        "A `Worker` with 100 slots, which prefetches 100 more jobs. The bulk add is `enqueue_many`.",
    ),
    Candidate(
        "docket",
        "docket",
        "pydocket",
        ("pydocket",),
        "on, 15 minutes",
        "A `Worker` with 100 slots and `minimum_check_interval` of 10 ms instead of 250 ms, because it waits that long "
        "when all slots are used. The URL permits 1,000 connections, because the worker fails with 100.",
    ),
    Candidate(
        "arq",
        "arq",
        "arq",
        ("arq",),
        "on, 1 hour",
        "A `Worker` with 100 slots and `poll_delay` of 10 ms instead of 0.5 s. It has no bulk add.",
    ),
    Candidate(
        "ardiq",
        "ArdiQ",
        "ardiq",
        ("ardiq",),
        "on, 5 minutes",
        "An app with 100 slots. It runs its loop and its connections in Rust threads. The bulk add is `enqueue_many`.",
        MANY,
    ),
    Candidate(
        "celery",
        "Celery",
        "celery",
        ("celery[redis]", "gevent"),
        "off",
        "The gevent pool with 100 slots, without gossip and mingle. The handler is a plain function, because Celery "
        "runs no coroutines, and the 50 callers are threads.",
    ),
    Candidate(
        "bullmq",
        "BullMQ (Python)",
        "bullmq",
        ("bullmq",),
        "on, without limit",
        "A `Queue` with default options and a `Worker` with 100 slots. The bulk add is `addBulk`.",
    ),
)
COMMON: Final = ("uvloop", "hiredis")
"""Packages of every environment. All programs run on uvloop, except the worker of Celery."""


def candidates(only: Sequence[str] | None) -> list[Candidate]:
    """Return this library, the bare loop and the peers; `only` names some of the peers."""
    known = {peer.name for peer in PEERS}
    unknown = sorted(set(only or ()) - known)
    if unknown:
        raise ValueError(f"there is no peer {unknown[0]!r}; the peers are {', '.join(sorted(known))}")
    return [OURS, LOOP, *(peer for peer in PEERS if not only or peer.name in only)]
