"""The real system under test: the function library on a separate server, called synchronously.

The driver uses the typed callers of the library. Their coroutines never wait here, so each one runs in a single step.
model.py defines the expected effect of each call.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from collections.abc import Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar, cast

import hiredis

from glidemq_async.functions import loader
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Arg, RequestChannels, Wait
from glidemq_async.functions.checking import Finding
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.wire import ReplyError
from tests.support.servers import Server

T = TypeVar("T")
Delivery = Literal["once", "twice", "lost"]

BASE = "model:{queue}"
IDEMPOTENT = frozenset(
    {
        "advanceFlows",
        "followChunks",
        "openQueue",
        "renewLeases",
        "endRuns",
        "awaitJob",
        "awaitJobs",
        "forgetReply",
        "forgetReplies",
        "confirmReplies",
    }
)
STRUCTURES = (
    "returned",
    "scheduled",
    "completed",
    "failed",
    "lifo",
    "prioritized",
    "keyed",
    "suspended",
    "fifo",
    "runs",
)
KEYS = ("x", "y")
"""The ordering keys of keyed jobs."""
SINGLE_KEYS = frozenset(
    {*STRUCTURES, "id", "events", "meta", "meta2", "idle", "timer", "alive", "workers", "waiters", "held", "expiry",
     "revoking", "sequence", "ready", "sleeping", "resting", "pauses", "limited", "limits", "rate", "deduped", "outbox",
     "moved", "results", "recorded", "started", "inbox", "schedules", "schedule_roles", "running",
     "stopping", "stopping_runs", "streamed", "signalled", "stepped", "failing", "failure_groups",
     "settings", "event_rules", "compact", "compact_runs", "renewed", "consumers", "key_lines"}
)  # fmt: skip
SEQUENCE_DIGITS = 16
"""The length of the prefix of a delayed job's id."""
MAILBOX = "signals:"
"""The beginning of the names of mailboxes."""
POSTED = 5
"""The position of this reply code in the reply of a settle call."""
AGE_GRAIN_MS = 7000
"""Pending entries age in multiples of this value. The few real milliseconds of a test are too short to matter."""


def run(call: Coroutine[object, None, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        call.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise AssertionError("a call that must run synchronously has waited")


class Connection:
    """A connection to the server's unix socket. It sends a batch of commands and reads their replies."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(path)
        self._reader = hiredis.Reader()

    def write(self, *words: Arg) -> None:
        """Send one command without reading its reply."""
        self._socket.sendall(pack(*words))

    def send(self, *words: Arg) -> object:
        """Send one command. Return its reply or raise its error."""
        self.write(*words)
        reply = self.read()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def send_all(self, commands: Iterable[Sequence[Arg]]) -> list[object]:
        """Send commands in one batch. Return their replies or raise the first error."""
        packed = [pack(*words) for words in commands]
        self._socket.sendall(b"".join(packed))
        replies = [self.read() for _ in packed]
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def read(self) -> object:
        """Read one reply."""
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return reply

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def read_texts(self) -> list[str]:
        """Read one reply that is a list of strings."""
        # A push is binary. `surrogateescape` lets its reader restore the bytes.
        return [
            str(word, "utf-8", "surrogateescape") if isinstance(word, bytes) else str(word)
            for word in _list(self.read())
        ]


WAS_NAMED: Final = "2"  # the deliveries of a run that its worker has named


class SeenRun(NamedTuple):
    """A run outside of `fifo`: its job, its worker, the age of its lease in ms, and whether the worker has named it."""

    job: str
    worker: str
    idle: int
    was_named: bool


@dataclass
class Snapshot:
    """The stored data of the queue, unchanged."""

    keys: list[str]
    records: dict[str, dict[str, str]]
    logs: dict[str, list[str]]
    fifo: dict[str, str]
    fifo_pending: dict[str, str]
    plain: set[str]
    """The jobs without a record. `records` has what their entries and results say."""
    runs: dict[str, SeenRun]
    """The runs of jobs that did not wait in `fifo`, by token."""
    stray: list[str]
    """The tokens in `renewed` that belong to no run."""
    returned: list[str]
    scheduled: list[tuple[str, int]]
    completed: list[tuple[str, int]]
    failed: list[tuple[str, int]]
    expiry: dict[str, int]
    held: dict[str, int]
    revoking: set[str]
    waiters: dict[str, list[str]]
    workers: set[str]
    idle: dict[str, int]
    events: list[tuple[str, dict[str, str]]]
    lifo: list[str]
    prioritized: list[str]
    keyed: list[str]
    ready: list[str]
    sleeping: dict[str, int]
    resting: dict[str, str]
    deduped: dict[str, str]
    keyq: dict[str, list[str]]
    running: dict[str, int]
    keyrest: dict[str, set[str]]
    dedup: dict[str, tuple[int, str]]
    meta: dict[str, str]
    outbox: list[tuple[str, dict[str, str]]]
    moved: dict[str, int]
    inbox: set[str]
    schedulers: dict[str, dict[str, str]]
    schedules: dict[str, int | None]
    schedule_roles: dict[str, str]
    stopping: dict[str, int]
    stopping_runs: dict[str, str]
    event_rules: dict[str, str]
    damaged: set[str]
    """The compact jobs with a record, and the runs without their compact job."""

    def waiting(self) -> set[str]:
        """Return the jobs that wait for their claim."""
        return {*self.waiting_in_fifo()}.union(self.returned, self.lifo, self.prioritized, *self.keyq.values())

    def waiting_in_fifo(self) -> list[str]:
        """Return the jobs of the entries that are neither pending nor kept for a completed job."""
        done = {id_ for id_, _ in self.completed}
        return [id_ for entry, id_ in self.fifo.items() if entry not in self.fifo_pending and id_ not in done]


@dataclass
class Belongings:
    """The stored data of suspended jobs, signals, streams and journals."""

    open_streams: set[str]
    """The jobs with an open stream of chunks."""
    suspended: dict[str, int]
    """The suspended jobs and their deadlines."""
    warm: dict[str, str]
    """The workers that keep the functions of suspended jobs."""
    signalled: dict[str, str]
    """The fields of the hash `signalled`."""
    mailboxes: dict[str, list[str]]
    """The signals in each mailbox."""
    journals: dict[str, str]
    """The jobs with a journal, each with its size."""


def _text(value: object) -> str:
    return cast("bytes", value).decode(errors="surrogateescape")


def _list(value: object) -> list[object]:
    return cast("list[object]", value)


def _pairs(flat: object) -> list[tuple[str, str]]:
    words = [_text(word) for word in _list(flat)]
    return list(zip(words[::2], words[1::2], strict=True))


def _texts(words: object) -> list[str]:
    return [_text(word) for word in _list(words)]


def _record(flat: object) -> dict[str, str]:
    words = iter(_texts(flat))
    return dict(zip(words, words, strict=True))


def _owner(text: str) -> tuple[int, str]:
    ends, _, owner = text.partition(" ")
    return int(ends.partition("-")[0]), owner


def _worker_in(warm: bytes) -> str:
    """Return the worker in the field `warm`, "<worker> <version>"."""
    return warm.decode().partition(" ")[0]


def _scores(flat: object) -> list[tuple[str, int]]:
    return [(member, int(score)) for member, score in _pairs(flat)]


def _fifo_job(entry: str, fields: list[str]) -> str:
    """Return the job of an entry of `fifo`."""
    return entry.partition("-")[0] if fields[0] else fields[1][1:]


def _record_of(entry: str, fields: list[str], kept: str | None, claim: str | None) -> dict[str, str]:
    """Return the record that a plain job would have. `claim` is that of a running one, as a reader sees it."""
    record = {"name": fields[0], "data": fields[1]}
    if kept is not None:
        ended, _, result = kept.split(" ", 2)
        return record | {"place": f"completed p{entry}", "claim": "1 0 0", "ended": ended, "result": result}
    if claim is None:
        return record | {"place": f"waiting p{entry}"}
    return record | {"place": f"active p{entry}", "claim": claim}


def _rows(rows: object) -> list[tuple[str, dict[str, str]]]:
    """Return the stream entries with all their fields."""
    return [(_text(entry), dict(_pairs(fields))) for entry, fields in map(_list, _list(rows))]


def _pending(rows: object) -> dict[str, str]:
    """Return the pending entries as entry -> consumer."""
    return {_text(row[0]): _text(row[1]) for row in map(_list, _list(rows))}


class Driver:
    """The storage of `Functions`: sends each call as `delivery` demands, and reads the stored data."""

    def __init__(self, path: str) -> None:
        self.wire = Connection(path)
        self.subscription = Connection(path)
        self.delivery: Delivery = "once"
        self.calls = 0
        self.direct_reads = 0
        """The number of transactions in which the worker has read entries itself."""
        self.functions = Functions(self, BASE)
        self._last_event = "0-0"
        self.load()

    def load(self, text: str | None = None) -> None:
        """Load the library or a modified text of it."""
        probe = (Path(__file__).parent / "probe.lua").read_text(encoding="utf-8")
        self.wire.send("FUNCTION", "LOAD", "REPLACE", (text or loader.source(testing=True)) + "\n" + probe)

    def reset(self, now: int) -> None:
        """Begin with an empty server and an open queue."""
        self.delivery = "once"
        self._last_event = "0-0"
        self.functions = Functions(self, BASE, RequestChannels())
        self.wire.send("FLUSHALL")
        self.set_clock(now)
        self.end_calls_early(False)
        run(self.functions.queue.open(None))

    def command(self, function: str, *args: Arg) -> tuple[Arg, ...]:
        return ("FCALL", loader.function_name(function), 1, BASE, *args)

    def set_clock(self, now: int) -> None:
        self.wire.send(*self.command("modelClock", now))

    def end_calls_early(self, early: bool) -> None:
        """Let each call add or settle only its first step, or all of its steps."""
        self.wire.send(*self.command("modelBudget", int(early)))

    def age(self, ms: int) -> None:
        """Let every pending entry grow older without waiting."""
        self.wire.send(*self.command("modelAge", ms, AGE_GRAIN_MS))

    async def call(
        self,
        function: str,
        key: str,
        args: Sequence[Arg],
        *,
        readonly: bool = False,
        timeout: float | None = None,
        wait: Wait = "default",
        messages_first: bool = False,
    ) -> object:
        """Make a call. "twice" sends it twice and expects equal replies; "lost" discards the first reply."""
        words = ("FCALL_RO" if readonly else "FCALL", loader.function_name(function), 1, key, *args)
        self.calls += 1
        first = self.wire.send(*words)
        if readonly or self.delivery == "once" or function in IDEMPOTENT:
            return first
        again = self.wire.send(*words)
        if function == "settleAndClaim":
            # The second reply may again report that the outbox has entries to relay.
            assert _same(_claimed(first), _claimed(again)) or self.delivery == "lost", (first, again)
        elif self.delivery == "twice":
            assert _same(first, again), f"{function} sent twice returned {first!r}, then {again!r}"
        return again

    async def transact(self, key: str, commands: Sequence[Sequence[Arg]]) -> list[object] | None:
        """Execute a transaction. "twice": a copy of it arrives late; "lost": its replies do not arrive."""
        assert key == BASE
        self.calls += 1
        replies = self._transact(commands)
        if self.delivery == "twice":
            again = self._transact(commands)
            assert isinstance(again[1], ReplyError), f"a repeated transaction has read {again[1]!r}"
            assert again[2] is None, f"a repeated transaction has finished a claim: {again[2]!r}"
        if replies[1] is not None and not isinstance(replies[1], ReplyError):
            self.direct_reads += 1
        return None if self.delivery == "lost" else replies

    def _transact(self, commands: Sequence[Sequence[Arg]]) -> list[object]:
        replies = self.wire.send_all([("MULTI",), *commands, ("EXEC",)])
        return _list(replies[-1])

    def findings(self, ids: Sequence[str]) -> list[Finding]:
        """Run the library's integrity check over the whole queue."""
        functions, found = self.functions, run(self.functions.check_marks.queue())
        for structure in STRUCTURES:
            cursor, some = run(functions.check.locations(structure, "", 1000))
            assert cursor == "", f"{structure} has more members than one step of this test can check"
            found += some
        for key in KEYS:
            found += run(functions.check_marks.key(key))
        found += run(functions.check_marks.journals([*self.journals()]))
        return found + run(functions.check.records(ids))

    def suspended(self) -> dict[str, int]:
        """Return the suspended jobs and their deadlines."""
        return dict(_scores(self.wire.send("ZRANGE", f"{BASE}:suspended", 0, -1, "WITHSCORES")))

    def belongings(self, seen: Snapshot) -> Belongings:
        """Read the structures of suspended jobs, signals, streams and journals in one batch."""
        boxes = [key.removeprefix(MAILBOX) for key in seen.keys if key.startswith(MAILBOX)]
        streamed, suspended, signalled, stepped, *mailboxes = self.wire.send_all(
            [
                ("HKEYS", f"{BASE}:streamed"),
                ("ZRANGE", f"{BASE}:suspended", 0, -1, "WITHSCORES"),
                ("HGETALL", f"{BASE}:signalled"),
                ("HGETALL", f"{BASE}:stepped"),
                *(("LRANGE", f"{BASE}:{MAILBOX}{id_}", 0, -1) for id_ in boxes),
            ]
        )
        waiting = dict(_scores(suspended))
        workers = self.wire.send_all([("HGET", f"{BASE}:job:{id_}", "warm") for id_ in waiting]) if waiting else []
        warm = {id_: _worker_in(cast("bytes", one)) for id_, one in zip(waiting, workers, strict=True) if one}
        return Belongings(
            open_streams={*_texts(streamed)},
            suspended=waiting,
            warm=warm,
            signalled=dict(_pairs(signalled)),
            mailboxes={id_: _texts(box) for id_, box in zip(boxes, mailboxes, strict=True)},
            journals=_record(stepped),
        )

    def journals(self) -> dict[str, str]:
        """Return the jobs with a journal, each with its size."""
        return _record(self.wire.send("HGETALL", f"{BASE}:stepped"))

    def journal_of(self, job_id: str) -> dict[str, str]:
        """Return the recorded steps of a job."""
        return _record(self.wire.send("HGETALL", f"{BASE}:steps:{job_id}"))

    def stream_of(self, job_id: str) -> list[tuple[str, list[str]]]:
        """Return the entries of a stream of chunks."""
        rows = self.wire.send("XRANGE", f"{BASE}:chunks:{job_id}", "-", "+")
        return [(_text(entry), _texts(fields)) for entry, fields in map(_list, _list(rows))]

    def snapshot(self) -> Snapshot:
        """Read all stored data, and the events since the last read."""
        raw = _list(self.wire.send(*self.command("modelProbe", self._last_event)))
        events = _rows(raw[17])
        if events:
            self._last_event = events[-1][0]
        records = {_text(id_): dict(_pairs(flat)) for id_, flat in map(_list, _list(raw[1]))}
        fifo = {_text(entry): _texts(fields) for entry, fields in map(_list, _list(raw[3]))}
        fifo_pending, results = _pending(raw[4]), dict(_pairs(raw[35]))
        claims, recorded = dict(_pairs(raw[36])), {*_texts(raw[37])}
        plain = {
            id_: _record_of(entry, fields, results.get(id_), claims.get(id_))
            for entry, fields in fifo.items()
            if fields[0] and (id_ := _fifo_job(entry, fields)) not in records and entry not in recorded
        }
        lines: dict[str, dict[str, object]] = {
            "keyq": {}, "keyrest": {}, "dedup": {}, "scheduler": {},
        }  # fmt: skip

        for kind, name, line in map(_list, _list(raw[25])):
            lines[_text(kind)][_text(name)] = line
        return Snapshot(
            keys=[_text(key)[len(BASE) + 1 :] for key in _list(raw[0])],
            records=records | plain,
            logs={_text(id_): [_text(line) for line in _list(lines)] for id_, lines in map(_list, _list(raw[2]))},
            fifo={entry: _fifo_job(entry, fields) for entry, fields in fifo.items()},
            fifo_pending=fifo_pending,
            plain={*plain},
            runs={
                token: SeenRun(job, worker, int(idle), mark == WAS_NAMED)
                for token, job, worker, idle, mark in map(_texts, _list(raw[5]))
            },
            stray=_texts(raw[6]),
            returned=[id_ for id_, _ in _pairs(raw[7])],
            scheduled=[(member[SEQUENCE_DIGITS:], due) for member, due in _scores(raw[8])],
            completed=sorted(
                [*_scores(raw[9]), *((id_, int(kept.split(" ")[0])) for id_, kept in results.items())],
                key=lambda job: (job[1], job[0]),
            ),
            failed=_scores(raw[10]),
            expiry=dict(_scores(raw[11])),
            held=dict(_scores(raw[12])),
            revoking={_text(id_) for id_ in _list(raw[13])},
            waiters={id_: channels.split() for id_, channels in _pairs(raw[14])},
            workers={name for name, _ in _pairs(raw[15])},
            idle=dict(_scores(raw[16])),
            events=events,
            lifo=_texts(raw[18])[::-1],
            prioritized=[member.partition(":")[2] or member for member in _texts(raw[19])],
            keyed=_texts(raw[20]),
            ready=[key for key, _ in _pairs(raw[21])],
            sleeping=dict(_scores(raw[22])),
            resting=dict(_pairs(raw[23])),
            deduped=dict(_pairs(raw[24])),
            keyq={name: [member[17:] for member in _texts(line)] for name, line in lines["keyq"].items()},
            running={key: int(count) for key, count in _pairs(raw[32])},
            keyrest={name: set(_texts(line)) for name, line in lines["keyrest"].items()},
            dedup={name: _owner(_text(line)) for name, line in lines["dedup"].items()},
            meta=dict(_pairs(raw[26])),
            outbox=_rows(raw[27]),
            moved=dict(_scores(raw[28])),
            inbox=set(_texts(raw[29])),
            schedulers={name: dict(_pairs(line)) for name, line in lines["scheduler"].items()},
            schedules={id_: None if slot == "inf" else int(slot) for id_, slot in _pairs(raw[30])},
            schedule_roles=dict(_pairs(raw[31])),
            stopping=dict(_scores(raw[33])),
            stopping_runs=dict(_pairs(raw[34])),
            event_rules=dict(_pairs(raw[38])),
            damaged={*_texts(raw[39])},
        )


def _claimed(reply: object) -> list[object]:
    """Return the part of a reply to a claim that is the same in a repeated call. Jobs that started together are single.

    See the row of these jobs in settle.lua.
    """
    if isinstance(reply, int):
        # A call of the short form without anything to report.
        at = abs(reply) // 1000
        reply = cast("list[object]", [at, [], [], 0, -1, 4 if reply < 0 else 0, 0, 1, at])
    now, refused, jobs, *rest = _list(reply)[:POSTED]
    values, flat = iter(_list(jobs)), list[object]()
    for row in zip(*[values] * 4, strict=True):
        flat += row
        if row[3] != 1:
            continue
        ids, *more = (next(values) for _ in range(4))
        if row[0]:
            flat += [ids, *more]
            continue
        del flat[-4:]
        for number, (job, text) in enumerate(zip(_text(ids).split(), _list(more[2]), strict=True)):
            head, name, data = cast("bytes", text).split(b"\x1f", 2)
            name, _, size = name.partition(b"\x1e")
            at = int(size or 0)
            flat += [f"{_text(row[1])}{number:03d}".encode(), name, data[at:], 1, job.encode()]
            flat += [data[:at] or None, b"1", head]
    return [now, refused, flat, *rest]


def _same(first: object, again: object) -> bool:
    """Compare two replies. A claimed job that is read again also carries its (empty) history around its route."""
    if first is None and isinstance(again, list):
        return not any(cast("list[object]", again))
    if first == b"" and again == []:  # a reply may leave out an empty list
        return True
    if isinstance(first, bytes) and isinstance(again, list):
        _, _, added, _, route, *_ = cast("list[bytes | None]", again)
        return first in {route, b" ".join(filter(None, (added, route)))}
    if isinstance(first, list) and isinstance(again, list):
        one, two = cast("list[object]", first), cast("list[object]", again)
        short = min(len(one), len(two))
        return all(map(_same, one[:short], two[:short])) and not any([*one[short:], *two[short:]])
    return first == again


@contextmanager
def driver() -> Generator[Driver]:
    """Start a server with the test build of the library."""
    room = Path(tempfile.mkdtemp(prefix="gmq-"))
    server = Server(room, unix=True)
    try:
        asyncio.run(server.start())
        assert server.path is not None
        running = Driver(server.path)
        try:
            yield running
        finally:
            running.wire.close()
            running.subscription.close()
    finally:
        server.kill()
        shutil.rmtree(room, ignore_errors=True)
