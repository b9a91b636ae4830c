"""The arguments of random calls: weighted actions and varied values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal, TypeVar

import hypothesis.strategies as st

from tests.model.parts import READY, Dedup, NewJob, Settled, State

START_MS = 1_800_000_000_000
STEP = 4
"""The number of due jobs, expired jobs or pending entries that one call handles: small, so that work takes steps."""
SETTLE_STEP = 2
"""The number of runs that one step of a settle call settles."""
ADD_STEP = 2
"""The number of jobs that one step of an add call adds."""

WORKERS = st.sampled_from(["w1", "w2", "w3", "w4"])
NUMBER = st.integers(0, 63)
DELIVERY = st.sampled_from(["once", "once", "once", "twice", "lost"])
Change = Literal["removeJob", "retryJob", "revokeJob", "promoteJob"]
CHANGES: tuple[Change, ...] = ("removeJob", "retryJob", "revokeJob", "promoteJob")
FITS: dict[Change, tuple[State, ...]] = {
    "removeJob": (*READY, "active", "delayed", "suspended"),
    "retryJob": ("failed", "completed"),
    "revokeJob": ("active", "suspended"),
    "promoteJob": ("delayed",),
}
IDS = st.sampled_from(["", "", "", "a", "b", "1", "2", "5", "9"])
PLAIN = (
    NewJob(), NewJob(), NewJob(), NewJob(lease=20_000), NewJob(delay=1), NewJob(delay=20_000), NewJob(at=START_MS - 5),
    NewJob(at=START_MS + 70_000), NewJob(ttl=5_000), NewJob(ttl=10_000, delay=20_000), NewJob(ttl=70_000, delay=1),
    NewJob(result_ttl=7_000), NewJob(result_ttl=70_000, ttl=5_000), NewJob(reply="r1"),
    NewJob(reply="r2", delay=7_000, ttl=7_000),
)  # fmt: skip
DEDUPS = (
    Dedup("d", "simple"), Dedup("d", "simple", 7_000), Dedup("d", "throttle", 7_000), Dedup("d", "debounce", 7_000),
    Dedup("d", "debounce"), Dedup("e", "simple", 20_000), Dedup("e", "throttle", 20_000), Dedup("e", "debounce"),
    Dedup("d", "keep_last"), Dedup("e", "keep_last"), Dedup("e", "keep_last"),
)  # fmt: skip
VARIETY = 120


def _various() -> tuple[NewJob, ...]:
    """Random combinations of options, the same ones in each run."""
    chance, jobs = random.Random(4), list[NewJob]()
    for _ in range(VARIETY):
        job = chance.choice([NewJob(), NewJob(), *PLAIN])
        way = chance.choice(["plain", "prioritized", "lifo", "key", "key", "key"])
        if way == "prioritized":
            job = job._replace(priority=chance.choice([1, 2, 2]))
        elif way == "lifo":
            job = job._replace(lifo=True)
        elif way == "key":
            key, cost, priority = (
                chance.choice("xxy"),
                chance.choice([1_000, 1_000, 500, 3_000]),
                chance.choice([0, 0, 1]),
            )
            job = job._replace(key=key, cost=cost, priority=priority, ttl=chance.choice([job.ttl, job.ttl, 5_000]))
        jobs.append(job._replace(dedup=chance.choice(DEDUPS)) if chance.random() < 0.35 else job)
    return tuple(jobs)


NEW = (
    *[NewJob()] * 20,
    *[NewJob(reply="r1", ttl=7_000)] * 2,
    NewJob(reply="r2"),
    NewJob(reply="r2", lease=20_000),
    *PLAIN,
    *PLAIN,
    *_various(),
)
COMPACT = (NewJob(priority=1), NewJob(priority=2), NewJob(lifo=True), NewJob(key="x"), NewJob(key="y"))
LIMITS = st.sampled_from([
    *[("concurrency", "1"), ("concurrency", "2"), ("concurrency", "3"), ("rate", "1 7000"), ("rate", "2 7000")],
    ("rate", "2 21000"),
    *[("concurrency", "")] * 5, *[("rate", "")] * 4,
])  # fmt: skip
KEY_LIMITS = st.sampled_from([
    ("concurrency", "1"), ("concurrency", "2"), ("concurrency", "3"), ("concurrency", ""), ("rate", "1 14000"),
    ("rate", "3 14000"), ("rate", "3 28000"), ("rate", ""), ("rate", ""), ("bucket", "2000 100"),
    ("bucket", "1000 1000"), ("bucket", ""), ("bucket", ""),
])  # fmt: skip
EVENT_RULES = st.sampled_from([
    ("events_off", "active"), ("events_off", "completed progress"), ("events_off", "all"), *[("events_off", "")] * 3,
    ("progress_interval", "7000"), ("progress_interval", ""), ("event_content", "size"), ("event_content", "value"),
    ("event_content", "value"), ("event_content", ""), ("max_events", "100000"), ("max_events", ""),
])  # fmt: skip
CAUSES = st.sampled_from(["", "", "", "unrecoverable", "expired"])
ARRIVED = (NewJob(), NewJob(), *PLAIN, *_various()[::10])
ARRIVALS = [(job, cause) for job in ARRIVED for cause in ("", "unrecoverable", "stalled")]
"""Jobs that other queues deliver, with the cause of their failure there. "" means that the job is not a dead letter."""
ENDS = (
    Settled("c", "", ""), Settled("c", "", "", retention=(0, 0)), Settled("c", "", "", retention=(1, -1)),
    Settled("c", "", "", retention=(2, -1)), Settled("c", "", "", retention=(-1, 5_000)), Settled("f", "", ""),
    Settled("f", "", "", cause="unrecoverable"), Settled("f", "", "", retention=(1, 60_000)),
    Settled("c", "", "", ttl=7_000), Settled("c", "", "", retention=(1, -1), ttl=70_000),
    Settled("f", "", "", ttl=20_000), Settled("f", "", "", retention=(0, -1)), Settled("r", "", ""),
    Settled("r", "", "", delay=1), Settled("r", "", "", delay=20_000), Settled("d", "", "", delay=7_000),
    Settled("b", "", ""), Settled("b", "", ""), Settled("l", "", "", delay=7_000), Settled("l", "", "", delay=1),
    Settled("l", "", "", delay=20_000), Settled("d", "", "", delay=7_000, step="one"),
    Settled("s", "", "", delay=-1), Settled("s", "", "", delay=-1, warm=True),
    Settled("s", "", "", delay=20_000, names=("a",)), Settled("s", "", "", delay=7_000, names=(), warm=True),
    Settled("s", "", "", delay=-1, names=("a", "b"), step="two"),
    Settled("s", "", "", delay=-1, single=True), Settled("s", "", "", delay=7_000, names=("b",), gives_back=True),
    Settled("s", "", "", delay=-1, names=("a",), step="two", single=True, gives_back=True, warm=True),
)  # fmt: skip
RUN = st.tuples(st.sampled_from(["held"] * 7 + ["stale", "missing", "again"]), NUMBER, st.sampled_from(ENDS))
RUNS = st.lists(RUN, min_size=1, max_size=4)


F = TypeVar("F", bound=Callable[..., None])
ACTIONS: list[st.SearchStrategy[tuple[str, dict[str, object]]]] = []
BARE_ACTIONS: list[st.SearchStrategy[tuple[str, dict[str, object]]]] = []
"""The actions of `OF_BARE_RUNS`."""
OF_BARE_RUNS = {"add", "claim", "settle", "settle_and_claim", "repeat_call"}
"""The usual actions of a run in which most jobs have no options."""


def action(weight: int, **arguments: st.SearchStrategy[object]) -> Callable[[F], F]:
    """A rule with a weight. (Hypothesis chooses all rules equally often, and leaves many of them out of a run.)"""

    def register(method: F) -> F:
        # Separate strategies, because Hypothesis counts a repeated strategy only once.
        name = method.__name__
        lists = [ACTIONS, BARE_ACTIONS] if name in OF_BARE_RUNS else [ACTIONS]
        for actions in lists:
            actions.extend(st.tuples(st.just(name), st.fixed_dictionaries(arguments)) for _ in range(weight))
        return method

    return register
