"""Compares the stored data with the model. Every difference raises an AssertionError that names it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TypeVar, cast

import msgpack

from glidemq_async.queues.events import WITH_CONTENT, WITH_DETAIL
from tests.model.claims import RETURNED
from tests.model.driver import AGE_GRAIN_MS, SINGLE_KEYS, SeenRun, Snapshot
from tests.model.event_rules import OF_LIVES
from tests.model.lines import SEP
from tests.model.lines import Lines as Queue
from tests.model.parts import READY, Event, Job, StoppingRun

T = TypeVar("T")
UNKNOWN_LEASE = "0"
"""The lease of a completed plain job, which is not stored."""
OWNED = frozenset(
    {"job", "logs", "chunks", "signals", "steps", "call", "keyq", "keyz", "keyrest", "key", "keyrate", "keybucket",
     "dedup", "metrics", "scheduler"}
)  # fmt: skip
FLAGS = {
    "a": "waiters", "b": "held", "c": "expiry", "d": "revoking", "e": "returned", "f": "scheduled", "g": "lifo",
    "h": "prioritized", "i": "ready", "j": "sleeping", "k": "resting", "l": "pauses", "m": "limits", "n": "deduped",
    "o": "timer", "p": "outbox", "q": "moved", "r": "running", "v": "streamed",
    "z": "suspended", "{": "signalled", "|": "stepped", "}": "event_rules", "~": "compact",
}  # fmt: skip
"""The letters in the field `features` of `meta`, and the structures that they stand for."""


_RULES = {"off": "events_off", "interval": "progress_interval", "content": "event_content"}
"""The setting of each field of `event_rules`."""


def same(what: str, stored: T, expected: T) -> None:
    """Check that both values are equal."""
    assert stored == expected, f"{what}: the server has {stored!r}, the model expects {expected!r}"


class EventReader:
    """Decodes event entries and checks the stream: positions without a gap, and one end in each life of a job."""

    def __init__(self) -> None:
        self._events = 0
        self._ended: set[str] = set()

    def read(self, entries: list[tuple[str, dict[str, str]]]) -> list[Event]:
        """Return the events of new entries in their order."""
        events = list[Event]()
        for _, fields in entries:
            same("the number of an event entry's first event", int(fields["seq"]), self._events)
            contents = _contents(fields)
            found = [event for line in fields["e"].split("\n") for event in _unpack(line, contents)]
            same(f"n of the event entry {fields['e']!r}", int(fields["n"]), len(found))
            self._events += len(found)
            events += found
        for event in events:
            self._follow(event)
        return events

    def forget_lives(self) -> None:
        """Events of an earlier job with the same id are switched off."""
        self._ended.clear()

    def _follow(self, event: Event) -> None:
        if event.kind in ("completed", "failed"):
            assert event.id not in self._ended, f"job {event.id} ended twice in one life"
            self._ended.add(event.id)
        elif event.kind == "added" or event.detail in ("retried", "replayed"):
            self._ended.discard(event.id)


def created(added: str | None, entry: str, way: str | None) -> int:
    """Return the time when a job was added: from its own field, else from a keyed route, else from its first stream
    entry.
    """
    if not added and way and way[0] == "k":
        return int(way.split(" ")[4])
    return int(added) if added else int(entry[1:].partition("-")[2])


def _entry(token: str) -> str:
    """Return the lease without the mark of a keyed job."""
    return "l" + token[1:] if token.startswith("k") else token


def route(text: str | None) -> tuple[object, ...]:
    """Describe how a job waits, without its position."""
    if not text:
        return ()
    kind, *words = text.split()
    if kind == "k":
        return kind, int(words[0]), int(words[2]), words[4]
    return (kind, *map(int, words))


def _contents(fields: dict[str, str]) -> dict[str, str]:
    """Return the contents of the events of an entry, by job."""
    if "name" in fields:
        id_ = fields["e"].partition("\x1f")[2]
        return {id_: "|".join([fields["name"], fields.get("key", ""), fields["v"]])}
    if "c" not in fields:
        return {}
    packed = fields["c"].encode(errors="surrogateescape")
    contents = cast("dict[str, list[object]]", msgpack.unpackb(packed))
    return {id_: "|".join(map(str, content)) for id_, content in contents.items()}


def _unpack(line: str, contents: dict[str, str]) -> list[Event]:
    kind, *words = line.split("\x1f")
    if kind in WITH_CONTENT:
        details = words[1::2] if kind in WITH_DETAIL else [""] * len(words)
        ids = words[::2] if kind in WITH_DETAIL else words
        return [Event(kind, id_, detail, contents.get(id_, "")) for id_, detail in zip(ids, details, strict=True)]
    if kind not in WITH_DETAIL:
        return [Event(kind, id_) for id_ in words]
    return [Event(kind, id_, detail) for id_, detail in zip(words[::2], words[1::2], strict=True)]


class Comparer:
    """Compares snapshots with the model, and remembers values that must not change."""

    def __init__(self) -> None:
        self.reader = EventReader()
        self.tokens: dict[str, str] = {}  # every lease ever seen -> its job
        self.added: dict[str, int] = {}
        self._known: dict[str, Job] = {}

    def compare(self, seen: Snapshot, model: Queue) -> None:
        """Raise an AssertionError if the snapshot and the model differ."""
        _compare_keys(seen, model)
        self._learn_tokens(seen, model)
        _compare_lines(seen, model)
        _compare_locations(seen, model)
        _compare_readiness(seen, model)
        _compare_stopping(seen, model)
        _compare_marks(seen, model)
        for job in model.jobs.values():
            if not job.record_lost:
                _compare_record(seen.records[job.id], job)
                same(f"log lines of job {job.id}", seen.logs.get(job.id, []), job.logs)
                self._compare_added(seen.records[job.id], job)
        self._known = {id_: job for id_, job in self._known.items() if id_ in model.jobs}
        events = Counter(self.reader.read(seen.events))
        if model.event_rules.off & OF_LIVES:
            self.reader.forget_lives()
        rules = {name: value for name, value in model.event_rules.rules.items() if value}
        most = {"max_events": seen.meta["max_events"]} if "max_events" in seen.meta else {}
        same("rules of events", {_RULES[name]: value for name, value in seen.event_rules.items()} | most, rules)
        same("events", events - Counter(model.events), Counter[Event]())
        same("missing events", Counter(model.events) - events, Counter[Event]())
        model.events.clear()

    def _learn_tokens(self, seen: Snapshot, model: Queue) -> None:
        """Check a lease that the server named: it is new, and belongs to the stream of that origin."""
        for job in model.having("active"):
            if job.token == "?":
                state, _, token = seen.records[job.id]["place"].partition(" ")
                same(f"state of job {job.id}", state, "active")
                assert token not in self.tokens, f"the lease {token} of job {job.id} was used before"
                same(f"origin of the lease of job {job.id}", token[0], job.stream)
                self.tokens[token] = job.id
                job.token = token

    def _compare_added(self, record: dict[str, str], job: Job) -> None:
        """Check that the time of creation, which the record or the first stream entry holds, never changes."""
        added = created(record.get("added"), record["place"].partition(" ")[2], record.get("route"))
        if self._known.get(job.id) is not job:  # a new job of the same id
            self._known[job.id], self.added[job.id] = job, added
        same(f"time of creation of job {job.id}", added, self.added[job.id])


def _compare_keys(seen: Snapshot, model: Queue) -> None:
    live = {job.id for job in model.jobs.values() if not job.record_lost}
    same("jobs that exist", set(seen.records), live)
    same("compact jobs that have a record, or a run but no text", seen.damaged, set())
    same("plain jobs without a record", seen.plain, {job.id for job in model.jobs.values() if job.plain})
    _compare_flags(seen)
    same("jobs that have log lines", set(seen.logs), {job.id for job in model.jobs.values() if job.logs})
    for key in seen.keys:
        kind = key.partition(":")[0]
        assert kind in OWNED or key in SINGLE_KEYS, f"a key without an owner: {key}"


def _compare_flags(seen: Snapshot) -> None:
    """Check that each structure that exists has its flag. A flag without a structure stays until the next sweep."""
    missing = [name for letter, name in FLAGS.items() if name in seen.keys and letter not in seen.meta["features"]]
    same("structures without a flag", missing, [])


def _compare_lines(seen: Snapshot, model: Queue) -> None:
    lines = {name: [job.id for job in line] for name, line in model.lines().items()}
    stored = {"plain": seen.waiting_in_fifo()}
    stored |= {"lifo": seen.lifo, "prioritized": seen.prioritized}
    stored |= {f"key {key}": line for key, line in seen.keyq.items()}
    for name in ("returned from the line", "returned from another structure"):
        # The times of their entries define the order of the two groups. Several entries can have the same time.
        stored[name] = [id_ for id_ in seen.returned if id_ in lines.get(name, ())]
    for name in {*lines, *stored}:
        same(name, stored.get(name, []), lines.get(name, []))
    same("number of released jobs", len(seen.returned), sum(len(lines.get(name, ())) for name in RETURNED))
    keyed = sorted((job for job in model.having("key-waiting")), key=lambda job: job.key_position)
    same("all jobs that wait in lines of keys", seen.keyed, [job.id for job in keyed])


def _compare_readiness(seen: Snapshot, model: Queue) -> None:
    """Check that each key is ready, or sleeps until the right time, exactly when the model expects it."""
    held = model.held_back()
    same("keys that are ready or asleep", sorted([*seen.ready, *seen.sleeping]), sorted(held))
    for key in seen.ready:
        assert held[key] <= model.now, f"key {key} is ready, but limited until {held[key]}; the time is {model.now}"
    for key, until in seen.sleeping.items():
        same(f"wake time of the sleeping key {key}", max(until, model.now), held[key])
    jobs = model.jobs.values()
    resting = defaultdict[str, set[str]](set)
    running = Counter(job.key for job in jobs if job.key is not None and job.state == "active")
    for job in jobs:
        if job.key is not None and job.state == "delayed" and job.resting:
            resting[job.key].add(job.id)
    running += Counter(run.key for run in model.stopping.values() if run.key is not None)
    same("running jobs of keys", seen.running, dict(running))
    same("resting jobs of keys", seen.keyrest, resting)
    same("resting jobs", seen.resting, {id_: key for key, ids in resting.items() for id_ in ids})


def _compare_locations(seen: Snapshot, model: Queue) -> None:
    same("scheduled", seen.scheduled, [(job.id, job.due) for job in model.scheduled()])
    same("completed", seen.completed, [(job.id, job.position) for job in model.ended("completed")])
    same("failed", seen.failed, [(job.id, job.position) for job in model.ended("failed")])
    pending = {f"p{entry}": worker for entry, worker in seen.fifo_pending.items()}
    pending |= {_entry(token): one.worker for token, one in seen.runs.items()}
    same("running", pending, {_entry(job.token): job.worker for job in model.having("active")})
    others = {
        job.token: SeenRun(job.id, job.worker, job.idle, job.renewed)
        for job in model.having("active")
        if job.stream != "p"
    }
    same("runs outside of the stream", seen.runs, others)
    same("renewals of no run", seen.stray, [])


def _compare_stopping(seen: Snapshot, model: Queue) -> None:
    """The age of a lease is exact but for the milliseconds that passed on the real clock before the removal."""
    stored = dict[str, StoppingRun]()
    for token, text in seen.stopping_runs.items():
        worker, lock, key = text.split(SEP)
        idle = model.now - seen.stopping[token] + int(lock)
        stored[token] = StoppingRun(key or None, worker, int(lock), idle - idle % AGE_GRAIN_MS)
    same("stopping runs", stored, model.stopping)
    same("leases of stopping runs", set(seen.stopping), set(model.stopping))


def _compare_marks(seen: Snapshot, model: Queue) -> None:
    jobs = model.jobs.values()
    same("expiry", seen.expiry, {job.id: job.expires for job in jobs if job.expires is not None})
    same("held", seen.held, {job.id: job.held for job in jobs if job.held is not None})
    same("revoking", seen.revoking, {job.id for job in jobs if job.revoking})
    followed = {wanted: f"{SEP}{id_}" for wanted, id_ in model.successors.items()}
    owners = {wanted: (ends, id_ + followed.get(wanted, "")) for wanted, (ends, id_) in model.owners.items()}
    same("owners of deduplication ids", seen.dedup, owners)
    same("jobs whose end frees one", seen.deduped, model.marks)
    same("waiters", seen.waiters, {job.id: job.waiters for job in jobs if job.waiters})


def _compare_record(record: dict[str, str], job: Job) -> None:
    state, _, entry = record["place"].partition(" ")
    stored: dict[str, object] = {
        "state": state,
        "name": record["name"],
        "data": record["data"],
        "failures": int(record.get("failures", 0)),
        "stalls": int(record.get("stalls", 0)),
        "ended": int(record["ended"]) if "ended" in record else None,
        "drop": record.get("drop", ""),
    }
    stored |= {name: record.get(name) for name in ("result", "error", "reason", "cause", "progress")}
    same(f"record of job {job.id}", stored, {name: getattr(job, name) for name in stored})
    same(f"route of job {job.id}", route(record.get("route")), job.route)
    if job.state in READY:
        same(
            f"position of job {job.id}",
            (entry == "r", (state, entry) == ("waiting", "i")),
            (job.returned, job.line_name == "lifo"),
        )
    if job.state == "active":
        same(f"lease of job {job.id}", entry, job.token)
    fence, _, lock, *_ = record.get("claim", "0 0 0").split()
    same(f"fencing token of job {job.id}", int(fence), job.fence)
    if job.fence and lock != UNKNOWN_LEASE:
        same(f"lease time of job {job.id}", int(lock), job.lock)
