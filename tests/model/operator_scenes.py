"""What operators see and do, call by call: failure groups, histories, bulk changes, operations and audit lines.

Each scene checks the rules of one part of the Lua. test_operators.py breaks the Lua and expects that a scene fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

import msgpack

from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.bulk import Action, BulkChange, ChangeStep
from glidemq_async.functions.calling import RequestChannel
from glidemq_async.functions.claimed_jobs import ClaimedJob
from glidemq_async.functions.failure_groups import FailureGroupRow
from glidemq_async.functions.operations import Advance
from glidemq_async.functions.outcomes import Completed, Delayed, Failed, Outcome, Retry
from glidemq_async.storage.redis.wire import ReplyError
from tests.model.driver import BASE, Driver, run
from tests.support.fake_worker import SettledRun, with_runs

HOUR: Final = 3_600_000
START: Final = 440_000 * HOUR
DAY: Final = 24 * HOUR
SMALLER: Final = {
    "local ENOUGH = 0.002": "local ENOUGH = 10",
    "local SETTLED, CLAIMED, ADDED = 0.001, 0.002, 0.002": "local SETTLED, CLAIMED, ADDED = 10, 10, 10",
    "local MOST_GROUPS = 200": "local MOST_GROUPS = 3",
    "local MOST_NOTES = 16 ": "local MOST_NOTES = 3 ",
    "local MOST_VERSIONS = 8": "local MOST_VERSIONS = 2",
    "local STEP = 50\nlocal SHORTEST_LIST": "local STEP = 2\nlocal SHORTEST_LIST",
    "local MOST, KEPT_MS, MOST_BYTES, MOST_READ, TRIMMED = 10000,": (
        "local MOST, KEPT_MS, MOST_BYTES, MOST_READ, TRIMMED = 150,"
    ),
    "local TICKET_MS, KEPT_MS, MOST_LISTED, MOST_READ, MOST_TARGETS = 900000, 30 * 86400000, 1000,": (
        "local TICKET_MS, KEPT_MS, MOST_LISTED, MOST_READ, MOST_TARGETS = 900000, 30 * 86400000, 3,"
    ),
}
"""Limits that the scenes reach."""
T = TypeVar("T")


def packed_error(kind: str = "ValueError", *, place: str = "", group: str = "", version: str = "") -> bytes:
    """Return an error as a worker sends it."""
    return msgpack.packb([kind, f"{kind} of a test", "", place, group, version])


def failed(error: bytes = b"", cause: Any = "unrecoverable") -> Failed:
    return Failed(packed_error() if error == b"" else error, cause, "ValueError: of a test")


class Scene:
    """A queue, its worker, and the calls of operators."""

    def __init__(self, driver: Driver) -> None:
        driver.reset(START)
        self.driver = driver
        self.functions = driver.functions
        self.now = START
        self._channel = RequestChannel("w")
        self._since: dict[str, int | str] = {}

    def pass_time(self, ms: int) -> None:
        self.now += ms
        self.driver.set_clock(self.now)

    def add(self, count: int = 1, name: str = "n", data: bytes = b"\xc0", **extra: object) -> list[str]:
        packed = msgpack.packb(extra) if extra else b""
        return run(self.functions.add.jobs([AddRequest("", name, data, b"", packed)] * count)).ids

    def claim(self, slots: int = 100) -> list[ClaimedJob]:
        request = self.functions.settle.request(self._channel, "w", slots, 30_000, subscribed=True)
        reply = run(self.functions.settle.send(request))
        self._since |= {job.id: reply.claimed_at if job.is_plain else "" for job in reply.jobs}
        return [*reply.jobs]

    def settle(self, jobs: Sequence[ClaimedJob], *outcomes: Outcome) -> None:
        """Settle runs with these outcomes, the last one also for all further runs."""
        request = self.functions.settle.request(self._channel, "w", 0, 30_000, subscribed=True)
        each = [*outcomes, *[outcomes[-1]] * (len(jobs) - len(outcomes))]
        runs = [
            SettledRun(job.id, job.entry, outcome, self._since[job.id]) for job, outcome in zip(jobs, each, strict=True)
        ]
        assert run(self.functions.settle.send(with_runs(request, runs))).refused == {}

    def end(self, *outcomes: Outcome, count: int | None = None, **extra: Any) -> list[str]:
        """Add and run jobs with these outcomes. Return their ids."""
        ids = self.add(count or len(outcomes), **extra)
        self.settle(self.claim(), *outcomes)
        return ids

    def describe(self, version: str) -> None:
        """Let the worker sign on with a version."""
        run(self.functions.leases.renew("w", msgpack.packb({"version": version}), [], 60_000))

    def groups(self) -> list[FailureGroupRow]:
        return run(self.functions.failure_groups.list())

    def history(self, job_id: str) -> list[list[str]]:
        return run(self.functions.job_history.get(job_id)).entries

    def kinds(self, job_id: str) -> list[str]:
        """Return the letters and outcomes of a history."""
        places = {"a": 4, "e": 2, "o": 3}
        return [f"{entry[0]} {entry[places[entry[0]]]}" for entry in self.history(job_id)]

    def state(self, job_id: str) -> str:
        [outline] = run(self.functions.reading.get_outlines([job_id]))
        return outline.get(b"place", b"gone").decode().partition(" ")[0]

    def field(self, job_id: str, name: str) -> str | None:
        found = cast("bytes | None", self.driver.wire.send("HGET", f"{BASE}:job:{job_id}", name))
        return None if found is None else found.decode()

    def change(
        self, action: Action, *jobs: str | BulkChange, operation: str | None = None, position: int = 1, **step: Any
    ) -> list[str]:
        """Make one step of a bulk change."""
        asked = ChangeStep(operation or f"op{time.monotonic_ns()}", action, step.pop("argument", ""), **step)
        changes = [BulkChange(job) if isinstance(job, str) else job for job in jobs]
        return run(self.functions.bulk.change(asked, position, changes)).statuses

    def ttl(self, key: str) -> int:
        return cast("int", self.driver.wire.send("PTTL", f"{BASE}:{key}"))

    def set_history(self, size: int) -> None:
        run(self.functions.job_history.set_bytes(size))

    def refuses(self, call: Callable[[], object]) -> None:
        try:
            call()
        except ReplyError:
            return
        raise AssertionError("the call was not refused")


# -- failure groups ---------------------------------------------------------------------------------------------------


def groups_count_failed_attempts(s: Scene) -> None:
    s.describe("1.0")
    placed = packed_error("TimeoutError", place="app.py:send:4", group="abc123")
    ids = s.end(failed(placed), Retry(placed, 60.0, "again"), failed(), Completed(b""), failed(placed, "revoked"))
    by_group = {one.fingerprint: one for one in s.groups()}
    named = by_group.pop("abc123")
    [other] = by_group.values()
    assert (named.count, named.error_type, named.place, named.name) == (2, "TimeoutError", "app.py:send:4", "n")
    assert (named.message, named.sample, named.began) == ("TimeoutError of a test", ids[0], "1.0")
    assert (named.first, named.last, named.versions) == (START, START, {"1.0": 2})
    assert (other.count, other.error_type, other.place) == (1, "ValueError", "")
    assert [s.field(job_id, "group") for job_id in ids[:3]] == ["abc123", "abc123", other.fingerprint]
    assert s.field(ids[4], "group") is None


def groups_move_on_with_the_hours(s: Scene) -> None:
    for hours, count in ((0, 2), (1, 1), (3, 4)):
        s.pass_time(START + hours * HOUR - s.now)
        s.end(failed(), count=count)
    [group] = s.groups()
    assert (group.trend[-4:], sum(group.trend), group.count) == ((2, 1, 0, 4), 7, 7)
    assert (group.first, group.last) == (START, START + 3 * HOUR)
    s.driver.set_clock(START)  # a clock that is set back
    s.end(failed())
    [group] = s.groups()
    assert (group.last, group.count) == (START + 3 * HOUR, 8)
    s.driver.set_clock(START + 26 * HOUR)
    s.end(failed())
    [group] = s.groups()
    assert (sum(group.trend), group.trend[-1], group.count) == (6, 1, 9)


def groups_know_the_last_versions(s: Scene) -> None:
    for version in ("1", "2", "1", "3"):
        s.end(failed(packed_error(version=version, group="g")))
    [group] = s.groups()
    assert (group.versions, group.began) == ({"1": 2, "3": 1}, "1")
    s.describe("9")
    s.end(failed(packed_error(group="g")))
    [group] = s.groups()
    assert group.versions == {"3": 1, "9": 1}


def the_oldest_groups_leave(s: Scene) -> None:
    for number in range(4):
        s.pass_time(1)
        s.end(failed(packed_error(group=f"g{number}")))
    assert [one.fingerprint for one in s.groups()] == ["g3", "g2", "g1"]
    assert s.driver.wire.send("HLEN", f"{BASE}:failure_groups") == 3
    s.pass_time(1)
    s.end(failed(packed_error(group="g1")))
    assert [one.fingerprint for one in s.groups()] == ["g1", "g3", "g2"]


def one_call_writes_many_groups(s: Scene) -> None:
    errors = [failed(packed_error(group=f"g{number}")) for number in (0, 1, 2, 0, 1, 0)]
    s.end(*errors)
    assert {one.fingerprint: one.count for one in s.groups()} == {"g0": 3, "g1": 2, "g2": 1}
    s.end(*errors, count=6)
    assert {one.fingerprint: one.count for one in s.groups()} == {"g0": 6, "g1": 4, "g2": 2}


def damaged_errors_have_groups_too(s: Scene) -> None:
    for error in (b"text", b"\x93\xc0\xc0\xc0", msgpack.packb(["T", "m", "", "p", "no:word", 7]), b"\xff" * 40):
        s.end(failed(error))
    assert sum(one.count for one in s.groups()) == 4
    assert all(one.fingerprint.isalnum() for one in s.groups())


def the_server_finds_failures(s: Scene) -> None:
    s.describe("1.0")
    [stalled] = s.add()
    s.claim()
    s.driver.age(60_000)
    for again in (False, True):  # the first sweep after a long time begins an outage
        run(s.functions.stalled.sweep(0, 0, 10**9, resume=again))
    [group] = s.groups()
    assert (group.error_type, group.count, group.place, group.versions) == ("stalled", 1, "", {"1.0": 1})
    assert s.field(stalled, "group") == group.fingerprint
    assert s.kinds(stalled) == ["a stalled", "e stalled"]
    assert s.history(stalled)[0][5:8] == ["w", "1.0", group.fingerprint]
    s.add(1, ttl=1_000)
    s.pass_time(1_001)
    s.claim()
    assert {one.error_type: one.count for one in s.groups()} == {"stalled": 1, "expired": 1}


# -- histories --------------------------------------------------------------------------------------------------------


def each_run_has_an_entry(s: Scene) -> None:
    s.describe("1.0")
    [job_id] = s.add()
    for outcome in (Retry(packed_error(group="g"), 0.0, "Value\nError"), Delayed(0.0, "later"), failed()):
        [job] = s.claim()
        s.pass_time(10)
        s.settle([job], outcome)
        run(s.functions.changes.set_delay(job_id, 0))
    assert s.kinds(job_id) == ["a retrying", "a delayed", "a failed"]
    first, second, _ = s.history(job_id)
    assert first[1:] == ["1", f"{START}", f"{START + 10}", "retrying", "w", "1.0", "g", "Value Error"]
    assert (second[5:8], second[8]) == (["w", "1.0", ""], "later")
    assert s.change("retry", job_id) == ["ok"]
    s.settle(s.claim(), Completed(b""))
    assert len(s.history(job_id)) == 3
    assert s.change("retry", job_id, argument="1") == ["ok"]
    assert s.kinds(job_id)[3:] == ["a completed"]
    assert s.history(job_id)[3][1:4] == ["4", f"{START + 30}", f"{START + 30}"]


def histories_are_bounded(s: Scene) -> None:
    [job_id] = s.add(delay=10**6)
    run(s.functions.job_history.set_bytes(200))
    for number in range(8):
        run(s.functions.job_history.note_action([job_id], "ada", f"action {number}", "x" * 50))
    assert s.kinds(job_id) == ["o action 6", "o action 7"]
    assert len(cast("str", s.field(job_id, "history"))) <= 200
    run(s.functions.job_history.set_bytes(10))
    run(s.functions.job_history.note_action([job_id], "ada", "long", ""))
    assert s.kinds(job_id) == ["o long"]
    run(s.functions.job_history.set_bytes(0))
    assert run(s.functions.job_history.note_action([job_id], "ada", "none", "")) == 1
    for other in s.end(failed(), Retry(packed_error(), 60.0, "again"), Delayed(60.0)):
        assert s.history(other) == []
    assert s.change("promote", job_id, actor="ada") == ["ok"]
    assert s.kinds(job_id) == ["o long"]
    for size in (-1, 65_537):
        s.refuses(partial(s.set_history, size))


def actions_are_noted_for_jobs_that_exist(s: Scene) -> None:
    first, second = s.add(2)
    assert run(s.functions.job_history.note_action([first, "none", second], "a" * 300, "move", "b\x1f\x1ec")) == 2
    for job_id in (first, second):
        assert s.history(job_id) == [["o", f"{START}", "a" * 200, "move", "b  c"]]
    assert s.state("none") == "gone"
    many = [str(number) for number in range(1_000, 1_201)]
    s.refuses(lambda: run(s.functions.caller.once("noteAction", ["a", "b", "c", *many])))


# -- bulk changes -----------------------------------------------------------------------------------------------------


def a_step_is_made_once(s: Scene) -> None:
    ids = s.add(3, delay=10**6)
    assert s.change("promote", *ids[:2], operation="op", position=1) == ["ok", "ok"]
    run(s.functions.changes.set_delay(ids[0], 10**6))
    assert s.change("promote", *ids[:2], operation="op", position=1) == ["ok", "ok"]
    assert s.state(ids[0]) == "delayed"
    assert s.change("promote", ids[2], operation="op", position=3) == ["ok"]
    s.refuses(lambda: s.change("promote", ids[0], operation="op", position=1))
    s.refuses(lambda: s.change("promote", ids[0], operation="other", position=0))
    assert s.ttl("call:op.op") > 6 * DAY


def a_step_leaves_other_jobs_as_they_are(s: Scene) -> None:
    s.pass_time(5)
    old, keyed, late = *s.add(1, delay=10**6), *s.add(1, key="a", delay=10**6), ""
    s.pass_time(5)
    [late] = s.add(1, delay=10**6)
    refused = BulkChange(old, refused="changed")
    statuses = s.change("promote", old, keyed, late, "none", refused, cutoff_ms=s.now - 1, states=("delayed",))
    assert statuses == ["ok", "ok", "later", "removed", "changed"]
    assert [s.state(one) for one in (late, "none")] == ["delayed", "gone"]
    assert s.change("promote", late, states=("failed",)) == ["state delayed"]
    assert s.change("cancel", s.add(1, key="a")[0], cutoff_ms=s.now - 1) == ["later"]
    assert s.change("delete", late, cutoff_ms=s.now) == ["ok"]


def only_ended_jobs_are_retried(s: Scene) -> None:
    waits = s.add(1, delay=10**6)[0]
    done, broken = s.end(Completed(b""), failed())
    assert s.change("retry", waits, done, broken) == ["state delayed", "state completed", "ok"]
    assert [s.field(broken, one) for one in ("failures", "reason", "cause", "group")] == [None] * 4
    assert s.change("retry", done, broken, argument="1") == ["ok", "state waiting"]
    assert len(s.claim()) == 2


def jobs_are_cancelled_with_the_reason(s: Scene) -> None:
    runs = s.add()[0]
    [running] = s.claim()
    waits, ended = s.add(1)[0], None
    assert s.change("cancel", waits, runs, argument="no need", actor="ada", note="fixed") == ["ok", "ok"]
    assert (s.state(waits), s.field(waits, "reason")) == ("failed", "revoked: no need")
    assert s.kinds(waits) == ["o cancel", "e revoked"]
    assert s.state(runs) == "active"
    s.settle([running], Failed(b"", "revoked", "revoked"))
    ended = s.change("cancel", runs, waits, actor="ada")
    assert ended == ["state failed", "state failed"]
    assert s.kinds(runs) == ["o cancel", "a revoked"]


def delays_are_changed(s: Scene) -> None:
    later, waits = s.add(1, delay=10**6)[0], s.add()[0]
    assert s.change("delay", later, waits, argument="5000") == ["ok", "ok"]
    assert s.driver.wire.send("ZCARD", f"{BASE}:scheduled") == 2
    s.pass_time(4_999)
    assert s.claim() == []
    s.pass_time(1)
    assert {job.id for job in s.claim()} == {later, waits}
    again, other = s.add(1, delay=10**6)[0], s.add()[0]
    assert s.change("delay", again, other, argument="0") == ["ok", "ok"]
    assert [s.state(one) for one in (again, other)] == ["waiting", "waiting"]
    assert s.change("promote", other, later) == ["state waiting", "state active"]
    assert s.change("delay", later, argument="5") == ["state active"]
    s.refuses(lambda: s.change("delay", other, argument="soon"))


def jobs_are_deleted_in_each_state(s: Scene) -> None:
    [runs] = s.add()
    [running] = s.claim()
    others = [s.end(failed())[0], s.add(1, delay=10**6)[0], s.add(1, key="a")[0]]
    assert s.change("delete", runs, *others, actor="ada") == ["ok"] * 4
    assert [s.state(one) for one in (runs, *others)] == ["gone"] * 4
    assert s.driver.wire.send("KEYS", f"{BASE}:job:*") == []
    request = s.functions.settle.request(RequestChannel("x"), "w", 0, 30_000, subscribed=True)
    request.settle(running.id, running.entry, None, Completed(b""))
    assert run(s.functions.settle.send(request)).refused != {}


def jobs_are_moved_with_their_options(s: Scene) -> None:
    later = s.add(1, delay=5_000, ttl=60_000, priority=3)[0]
    broken, done = s.end(failed(), Completed(b""))
    s.pass_time(1_000)
    moves = [BulkChange(later, target="own"), BulkChange(broken, data=b"\x01"), BulkChange(done)]
    assert s.change("move", *moves, argument="glide:{b}") == ["ok", "ok", "state completed"]
    assert [s.state(one) for one in (later, broken)] == ["gone", "gone"]
    rows = cast("list[list[list[bytes]]]", s.driver.wire.send("XRANGE", f"{BASE}:outbox", "-", "+"))
    first, second = (dict(zip(row[1][::2], row[1][1::2], strict=True)) for row in rows)
    assert b"own" in first.values()
    [extra] = [one for one in map(_options_of, first.values()) if one]
    assert (extra["at"], extra["ttl"], extra["priority"]) == (START + 5_000, 59_000, 3)
    assert b"\x01" in second.values()


def _options_of(value: bytes) -> dict[str, object]:
    """Return the options of an add, {} for another value of an entry."""
    try:
        found = msgpack.unpackb(value)
    except ValueError:
        return {}
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


def jobs_are_edited(s: Scene) -> None:
    later = s.add(1, delay=10**6)[0]
    broken, done = s.end(failed(), Completed(b""))
    [runs] = s.add()
    s.claim()
    jobs = [BulkChange(one, data=b"\x01", opts=b"\x80") for one in (later, broken, done, runs)]
    assert s.change("edit", *jobs, actor="ada") == ["ok", "ok", "state completed", "state active"]
    assert [s.field(one, "data") for one in (later, broken)] == ["\x01", "\x01"]
    assert [s.state(one) for one in (later, broken, done)] == ["delayed", "waiting", "completed"]
    assert s.field(later, "opts") in (None, "")
    assert s.kinds(broken) == ["a failed", "o edit"]
    assert s.change("edit", jobs[2], argument="1") == ["ok"]
    assert s.state(done) == "waiting"


def changes_are_noted_in_histories(s: Scene) -> None:
    later, other = s.add(2, delay=10**6)
    assert s.change("promote", later, actor="ada (cli)", note="op 1: now") == ["ok"]
    assert s.history(later) == [["o", f"{START}", "ada (cli)", "promote", "op 1: now"]]
    assert s.change("promote", later, actor="ada") == ["state waiting"]
    assert len(s.history(later)) == 1
    assert s.change("promote", other) == ["ok"]
    assert s.history(other) == []


# -- operations -------------------------------------------------------------------------------------------------------


def preview(s: Scene, operation: str = "op", size: int = 4) -> None:
    if size:
        run(s.functions.operations.add_targets(operation, 0, msgpack.packb(["q", ["1"] * size])))
        assert 0 < s.ttl(f"operation_targets:{operation}") <= 900_000
    run(s.functions.operations.create(operation, b"document", "ticket", size))


def start(s: Scene, operation: str = "op", ticket: str = "ticket") -> str:
    return run(s.functions.operations.start(operation, ticket, b"\x80", "operation", b"\xc0", b"line"))


def record(s: Scene, operation: str = "op") -> dict[bytes, bytes]:
    [found] = run(s.functions.operations.get([operation]))
    return found


def lines(s: Scene) -> list[bytes]:
    return [line for _, line in run(s.functions.audit.read("", 200))[1]]


def an_operation_starts_once_with_its_ticket(s: Scene) -> None:
    assert start(s) == "missing"
    preview(s)
    assert record(s)[b"state"] == b"previewed"
    assert 0 < s.ttl("operation:op") <= 900_000
    assert 0 < s.ttl("operation_targets:op") <= 900_000
    assert start(s, ticket="guess") == "ticket"
    assert (record(s)[b"state"], lines(s)) == (b"previewed", [])
    assert (start(s), start(s)) == ("started", "known")
    found = record(s)
    assert (found[b"state"], found[b"started"], found[b"settings"]) == (b"running", f"{START}".encode(), b"\x80")
    assert lines(s) == [b"line"]
    assert s.ttl("operation:op") > 29 * DAY
    assert s.ttl("operation_targets:op") > 29 * DAY
    assert [job.id for job in s.claim()] == ["op"]
    s.refuses(lambda: run(s.functions.operations.start("op", "ticket", b"", "n", b"", b"x" * 8_193)))


def an_operation_without_jobs_is_done(s: Scene) -> None:
    preview(s, size=0)
    assert start(s) == "started"
    assert (record(s)[b"state"], record(s)[b"ended"]) == (b"done", f"{START}".encode())
    assert s.claim() == []


def steps_are_counted_once(s: Scene) -> None:
    preview(s)
    start(s)
    calls = s.functions.operations
    assert run(calls.advance("none", Advance(0, 1, 0, 1, {}))) == ("missing", 0)
    assert run(calls.advance("op", Advance(0, 2, 0, 1, {"removed": 1}, b"watched"))) == ("running", 2)
    assert run(calls.advance("op", Advance(0, 2, 0, 1, {"removed": 1}))) == ("running", 2)
    assert run(calls.get_watched("op")) == b"watched"
    assert run(calls.advance("op", Advance(2, 3, 0, 0, {"removed": 1, "later": 0}))) == ("running", 3)
    assert run(calls.get_watched("op")) == b"watched"
    found = record(s)
    assert (found[b"done"], found[b"r:removed"], found[b"position"]) == (b"1", b"2", b"3")
    s.pass_time(7)
    assert run(calls.advance("op", Advance(3, 4, 4, 1, {}))) == ("done", 4)
    assert (record(s)[b"ended"], record(s)[b"chunk"]) == (f"{START + 7}".encode(), b"4")
    assert run(calls.get_targets("op", 0)) == b""
    s.refuses(lambda: run(calls.advance("op", Advance(4, 5, 0, 0, {}, b"x" * 65_537))))
    s.refuses(lambda: run(calls.add_targets("op", 0, b"x" * 262_145)))


def an_operation_is_ended_once(s: Scene) -> None:
    calls = s.functions.operations
    assert run(calls.end("op", "cancelled", "enough", b"line")) == "missing"
    preview(s)
    start(s)
    run(calls.advance("op", Advance(0, 2, 0, 2, {})))
    assert run(calls.end("op", "cancelled", "enough", b"cancel")) == "ok"
    assert run(calls.end("op", "stopped", "late", b"again")) == "state cancelled"
    assert (record(s)[b"state"], record(s)[b"stop_reason"]) == (b"cancelled", b"enough")
    assert lines(s) == [b"cancel", b"line"]
    assert run(calls.get_targets("op", 0)) == b""
    assert run(calls.advance("op", Advance(2, 4, 4, 2, {}, b"watched"))) == ("cancelled", 4)
    assert (record(s)[b"state"], record(s)[b"done"]) == (b"cancelled", b"4")
    assert s.ttl("operation_targets:op") == -2
    preview(s, "other")
    assert run(calls.end("other", "cancelled", "")) == "ok"
    assert start(s, "other") == "state cancelled"
    assert s.ttl("operation:other") > 29 * DAY
    s.refuses(lambda: run(calls.end("other", "cancelled", "", b"x" * 8_193)))


def the_newest_operations_are_listed(s: Scene) -> None:
    for number in range(5):
        s.pass_time(1)
        preview(s, f"op{number}")
    assert run(s.functions.operations.list_ids()) == ["op4", "op3", "op2"]
    s.pass_time(31 * DAY)
    preview(s, "last")
    assert run(s.functions.operations.list_ids()) == ["last"]


# -- audit lines ------------------------------------------------------------------------------------------------------


def audit_lines_are_read_in_pages(s: Scene) -> None:
    for number in range(5):
        run(s.functions.audit.write(b"%d" % number))
    cursor, rows = run(s.functions.audit.read("", 2))
    following, more = run(s.functions.audit.read(cursor, 2))
    assert [line for _, line in rows + more] == [b"4", b"3", b"2", b"1"]
    end, rest = run(s.functions.audit.read(following, 2))
    assert (end, [line for _, line in rest]) == ("", [b"0"])
    s.refuses(lambda: run(s.functions.audit.write(b"x" * 8_193)))


def a_line_is_replaced_at_the_end_of_its_change(s: Scene) -> None:
    first = run(s.functions.audit.write(b"started"))
    run(s.functions.audit.write(b"other"))
    run(s.functions.audit.end(first, b"ok"))
    assert lines(s) == [b"ok", b"other"]
    s.refuses(lambda: run(s.functions.audit.end(first, b"x" * 8_193)))


def audit_lines_are_bounded(s: Scene) -> None:
    for _ in range(160):
        run(s.functions.audit.write(b"x" * 8_000))
    assert s.driver.wire.send("XLEN", f"{BASE}:audit") == 150
    cursor, rows = run(s.functions.audit.read("", 150))
    assert cursor
    assert 60 < len(rows) < 70
    s.driver.set_clock(int(time.time() * 1_000) + 91 * DAY)
    assert run(s.functions.audit.read("", 150)) == ("", [])


SCENES: Final[dict[str, tuple[Callable[[Scene], None], ...]]] = {
    "failure groups": (
        groups_count_failed_attempts,
        groups_move_on_with_the_hours,
        groups_know_the_last_versions,
        the_oldest_groups_leave,
        one_call_writes_many_groups,
        damaged_errors_have_groups_too,
        the_server_finds_failures,
    ),
    "histories": (
        each_run_has_an_entry,
        histories_are_bounded,
        actions_are_noted_for_jobs_that_exist,
        the_server_finds_failures,
        jobs_are_cancelled_with_the_reason,
    ),
    "bulk changes": (
        a_step_is_made_once,
        a_step_leaves_other_jobs_as_they_are,
        only_ended_jobs_are_retried,
        jobs_are_cancelled_with_the_reason,
        delays_are_changed,
        jobs_are_deleted_in_each_state,
        jobs_are_moved_with_their_options,
        jobs_are_edited,
        changes_are_noted_in_histories,
    ),
    "operations": (
        an_operation_starts_once_with_its_ticket,
        an_operation_without_jobs_is_done,
        steps_are_counted_once,
        an_operation_is_ended_once,
        the_newest_operations_are_listed,
    ),
    "audit lines": (
        audit_lines_are_read_in_pages,
        a_line_is_replaced_at_the_end_of_its_change,
        audit_lines_are_bounded,
    ),
}
