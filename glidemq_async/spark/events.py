"""A range of a queue's events as record batches. This runs in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from glidemq_async.keys import QueueKeys
from glidemq_async.queue_events import KEY_SEP, SEP, WITH_DETAIL, before
from glidemq_async.spark.connection import Connection, connection_to
from glidemq_async.spark.offsets import NOWHERE, Loss
from glidemq_async.spark.read_options import ReadOptions
from glidemq_async.spark.schemas import arrow_schema
from glidemq_async.storage import StreamEntry
from glidemq_async.storage.urls import masked

ROWS: Final = 10_000
"""A record batch is closed when it holds so many rows."""
MOST_ENTRIES: Final = 2_000
FIRST_ENTRIES: Final = 100
ROW_VERSION: Final = 1
_NOTHING: Final[list[str | None]] = [None]


@dataclass
class EventPartition(InputPartition):
    """Events from number `first` up to and without `upto`: read from `entry` on, and no further than `last`."""

    queue: str
    incarnation: str
    entry: str
    first: int
    upto: int
    last: str


class EventsLostError(RuntimeError):
    """Events that were to be read are gone."""


def lost(loss: Loss, url: str) -> EventsLostError:
    """Return the error for a loss that the reader does not put up with."""
    return EventsLostError(
        f"{loss} (at {masked(url)}). What is lost is lost: go on without it by failOnDataLoss=false, which notes "
        "each loss for kind=losses; read more often, or keep events longer by publishPosition and retainUncommitted"
    )


def read_events(partition: InputPartition, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Read the events of one partition. Raises EventsLostError, unless losses are only to be noted."""
    if not isinstance(partition, EventPartition):  # Spark's stand-in for an empty plan
        return
    connection = connection_to(options.url)
    build = _Batches(partition, options, arrow_schema(schema))
    following = partition.first
    for entry, fields in _entries(connection, partition, options):
        seq, n = int(fields[b"seq"]), int(fields[b"n"])
        if seq + n <= following:
            continue
        if seq > following:
            _lose(connection, partition, options, following, min(seq, partition.upto))
        if seq >= partition.upto:
            following = partition.upto
            break
        build.add(entry, seq, n, int(fields[b"t"]), fields[b"e"].decode())
        following = min(seq + n, partition.upto)
        if build.rows >= ROWS:
            yield build.take()
        if following == partition.upto:
            break
    if following < partition.upto:
        _lose(connection, partition, options, following, partition.upto)
    if build.rows:
        yield build.take()


def _entries(
    connection: Connection, partition: EventPartition, options: ReadOptions
) -> Iterator[tuple[str, dict[bytes, bytes]]]:
    """Iterate over the entries from the partition's first one to its last one."""
    key = QueueKeys(options.prefix, partition.queue).key("events")
    after = NOWHERE if partition.entry == NOWHERE else before(partition.entry)
    last, count = _order(partition.last), FIRST_ENTRIES
    while True:
        found: list[StreamEntry] = connection.run(connection.storage.read_stream(key, after, count, 0))
        events = 0
        for raw, fields in found:
            after = raw.decode()
            if _order(after) > last:
                return
            events += int(fields[b"n"])
            yield after, fields
        if len(found) < count:
            return
        count = max(1, min(MOST_ENTRIES, options.fetch_size * len(found) // max(1, events)))


def _order(entry: str) -> tuple[int, int]:
    ms, _, number = entry.partition("-")
    return int(ms), int(number)


def _lose(connection: Connection, partition: EventPartition, options: ReadOptions, first: int, upto: int) -> None:
    loss = Loss(partition.queue, "they went while the batch was read", partition.incarnation, first, upto)
    if options.fail_on_loss:
        raise lost(loss, options.url)
    note_loss(connection, options, loss)


def note_loss(connection: Connection, options: ReadOptions, loss: Loss) -> None:
    """Write a loss down where kind=losses reads it; the same loss is noted once."""
    functions = connection.functions(QueueKeys(options.prefix, loss.queue))
    name = options.position_name or ""
    connection.run(functions.note_loss(name, loss.why, loss.incarnation, loss.first, loss.upto))


class _Batches:
    """Rows as columns, until there are enough for a record batch."""

    def __init__(self, partition: EventPartition, options: ReadOptions, schema: pa.Schema) -> None:
        self._partition = partition
        self._schema = schema
        self._kinds = pa.array(options.events) if options.events else None
        self._clear()

    def _clear(self) -> None:
        self._seq: list[int] = []
        self._ms: list[int] = []
        self._offset: list[str] = []
        self._event: list[str] = []
        self._job_id: list[str] = []
        self._detail: list[str | None] = []

    @property
    def rows(self) -> int:
        return len(self._seq)

    def add(self, entry: str, seq: int, n: int, ms: int, text: str) -> None:
        """Add the events of an entry that are within the partition."""
        begin = len(self._event)
        for line in text.split("\n"):
            kind, *words = line.split(SEP)
            ids = words
            if kind in WITH_DETAIL:
                ids = words[::2]
                self._detail += words[1::2]
            else:
                self._detail += _NOTHING * len(ids)
            self._job_id += ids
            self._event += [kind] * len(ids)
        low, high = max(0, self._partition.first - seq), min(n, self._partition.upto - seq)
        if low or high < n:
            for column in (self._event, self._job_id, self._detail):
                del column[begin + high :]
                del column[begin : begin + low]
        self._seq += range(seq + low, seq + high)
        self._ms += [ms] * (high - low)
        self._offset += [f"{entry}/{i}" for i in range(low, high)]

    def take(self) -> pa.RecordBatch:
        """Return what was added since the last time."""
        columns = _Columns(
            self.rows,
            self._partition,
            event=pa.array(self._event, pa.string()),
            raw=pa.array(self._detail, pa.string()),
            lists={"seq": self._seq, "offset": self._offset, "job_id": self._job_id, "ts": self._ms},
        )
        arrays = [columns.get(field.name, field.type) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if self._kinds is not None:
            batch = batch.filter(pc.is_in(columns.event, value_set=self._kinds))
        self._clear()
        return batch


class _Columns:
    """The columns of one batch by their names; only those that somebody wants are made."""

    def __init__(
        self, rows: int, partition: EventPartition, *, event: pa.Array, raw: pa.Array, lists: dict[str, list[Any]]
    ) -> None:
        self._rows = rows
        self._partition = partition
        self.event = event
        self._raw = raw
        self._lists = lists

    def get(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return a column of this type."""
        found = self._lists.get(name)
        if found is not None:
            if name == "ts":
                return pc.cast(pc.multiply(pa.array(found, pa.int64()), 1000), kind)
            return pa.array(found, kind)
        constant = {"queue": self._partition.queue, "incarnation": self._partition.incarnation, "v": ROW_VERSION}
        if name in constant:
            return pa.repeat(pa.scalar(constant[name], kind), self._rows)
        makers: dict[str, Callable[[], pa.Array]] = {
            "event": lambda: self.event,
            "name": self._name,
            "key": self._key,
            "detail": self._detail,
            "delay_ms": self._delay,
            "reason": self._reason,
            "error_class": self._error_class,
        }
        return pc.cast(makers[name](), kind)

    def _is(self, *kinds: str) -> pa.Array:
        return pc.is_in(self.event, value_set=pa.array(kinds))

    def _where(self, mask: pa.Array, values: pa.Array) -> pa.Array:
        return pc.if_else(mask, values, pa.scalar(None, pa.string()))

    def _name(self) -> pa.Array:
        return self._where(self._is("added"), self._detail())

    def _detail(self) -> pa.Array:
        # The key of an added job stands behind its name.
        return pc.replace_substring_regex(self._raw, f"{KEY_SEP}.*$", "")

    def _key(self) -> pa.Array:
        keyed = pc.and_(self._is("added"), pc.match_substring(self._raw, KEY_SEP))
        return self._where(keyed, pc.replace_substring_regex(self._raw, f"^[^{KEY_SEP}]*{KEY_SEP}", ""))

    def _delay(self) -> pa.Array:
        told = self._where(self._is("retrying", "limited"), self._raw)
        return pc.cast(pc.replace_substring_regex(told, " .*$", ""), pa.int64())

    def _reason(self) -> pa.Array:
        behind = pc.replace_substring_regex(self._where(self._is("retrying"), self._raw), "^[0-9]* ", "")
        return pc.coalesce(behind, self._where(self._is("failed"), self._raw))

    def _error_class(self) -> pa.Array:
        return pc.replace_substring_regex(self._reason(), ": .*$", "")
