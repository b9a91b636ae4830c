"""Conversion of the entries of a queue's event stream to the record batches of kind=events.

Arrow's functions process all events of a batch together. A Python loop over the events is several times slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from glidemq_async.errors import SerializationError
from glidemq_async.payloads.serialization import MsgpackSerializer
from glidemq_async.queues.events import KEY_SEP, SEP, WITH_CONTENT, WITH_DETAIL, EventContents, contents_of
from glidemq_async.spark.read.job_rows import to_json

__all__ = ["ROW_VERSION", "EventColumns"]

ROW_VERSION: Final = 1
_WITH_DETAIL: Final = pa.array(sorted(WITH_DETAIL))
_SERIALIZER: Final = MsgpackSerializer()


# One builder per queue, and the queue's name and incarnation are constant columns. The numbers of the events are not
# read from the entries but counted from the first one, which is why a batch may not contain a gap: see `take`.
class EventColumns:
    """Builder of the record batches of one queue, with the events of some kinds, or with all if `kinds` is empty."""

    def __init__(self, queue: str, incarnation: str, kinds: Sequence[str], schema: pa.Schema) -> None:
        self._constants: dict[str, object] = {"queue": queue, "incarnation": incarnation, "v": ROW_VERSION}
        self._kinds = pa.array(kinds) if kinds else None
        self._schema = schema
        self._clear()

    def _clear(self) -> None:
        # Lists of bytes, and not a list of entries: the garbage collector would visit each entry again and again.
        self._ids: list[bytes] = []
        self._seqs: list[bytes] = []
        self._times: list[bytes] = []
        self._texts: list[bytes] = []
        self._contents: dict[int, EventContents] = {}

    def add(self, entry: bytes, fields: dict[bytes, bytes]) -> None:
        """Append the next entry: its id and its fields."""
        if b"name" in fields or b"c" in fields:
            self._contents[len(self._ids)] = contents_of(fields)
        self._ids.append(entry)
        self._seqs.append(fields[b"seq"])
        self._times.append(fields[b"t"])
        self._texts.append(fields[b"e"])

    def take(self, first: int, stop: int) -> pa.RecordBatch:
        """Return the events from number `first` to `stop - 1`. The appended entries must contain them without a gap."""
        rows = _Rows(self._ids, self._seqs, self._times, self._texts, self._contents, range(first, stop))
        self._clear()
        arrays = [
            pa.repeat(pa.scalar(self._constants[field.name], field.type), stop - first)
            if field.name in self._constants
            else rows.column(field.name, field.type)
            for field in self._schema
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return batch if self._kinds is None else batch.filter(pc.is_in(rows.event, value_set=self._kinds))


_Content: TypeAlias = tuple[str, str, int | None, bytes | None]
"""The name, the key, the size of the result, and the stored value."""


class _Split(NamedTuple):
    """The events of some entries: for each event the position of its entry, and its parts."""

    entry: pa.Array
    event: pa.Array
    job_id: pa.Array
    detail: pa.Array


def _split(texts: pa.Array) -> _Split:
    # An entry is a text of lines, one per kind of event: "kind SEP id SEP id …", or "kind SEP id SEP detail SEP id …"
    # for kinds with details. First all texts become words with the number of their line, then a mask selects the words
    # that are job ids. The detail of a job is the word after its id.
    lines = pc.split_pattern(texts, "\n")
    words = pc.split_pattern(pc.list_flatten(lines), SEP)
    word, line = pc.list_flatten(words), pc.list_parent_indices(words)
    kind = pc.list_element(words, 0)
    detailed = pc.is_in(kind, value_set=_WITH_DETAIL)
    # The first word is the kind. Job ids follow, each with a detail after it if the kind has details.
    position = pc.subtract(_numbers(0, len(word)), pc.take(words.offsets, line))
    every, odd = pc.invert(pc.take(detailed, line)), pc.equal(pc.bit_wise_and(position, 1), 1)
    at = pc.indices_nonzero(pc.and_(pc.greater(position, 0), pc.or_(every, odd)))
    line = pc.take(line, at)
    behind = pc.if_else(pc.take(detailed, line), pc.add(at, 1), None)
    entry = pc.take(pc.list_parent_indices(lines), line)
    return _Split(entry, pc.take(kind, line), pc.take(word, at), pc.take(word, behind))


def _numbers(first: int, stop: int) -> pa.Array:
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), stop - first), start=first - 1)


class _Rows:
    """The columns of one batch, by name. A column is computed when it is requested."""

    def __init__(
        self,
        ids: list[bytes],
        seqs: list[bytes],
        times: list[bytes],
        texts: list[bytes],
        contents: dict[int, EventContents],
        numbers: range,
    ) -> None:
        self._ids, self._times = pa.array(ids, pa.string()), times
        self._begins = _integers(seqs)
        split = _split(pa.array(texts, pa.string()))
        # The entries may contain more events than the batch: the first entry may begin earlier and the last may end
        # later.
        begin = numbers.start - int(seqs[0])
        self._entry, self.event, self._job_id, self._raw = (column.slice(begin, len(numbers)) for column in split)
        self._seq = _numbers(numbers.start, numbers.stop)
        self._contents = self._contents_of_rows(contents)

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return a column of this type."""
        makers: dict[str, Callable[[], pa.Array]] = {
            "offset": self._offset,
            "seq": lambda: self._seq,
            "event": lambda: self.event,
            "job_id": lambda: self._job_id,
            "ts": self._ts,
            "name": self._name,
            "key": self._key,
            "detail": self._detail,
            "delay_ms": self._delay,
            "reason": self._reason,
            "error_class": self._error_class,
            "size": lambda: self._of_contents(2, pa.int64()),
            "value": self._value,
        }
        return pc.cast(makers[name](), kind)

    def _offset(self) -> pa.Array:
        index = pc.subtract(self._seq, pc.take(self._begins, self._entry))
        return pc.binary_join_element_wise(pc.take(self._ids, self._entry), pc.cast(index, pa.string()), "/")

    def _ts(self) -> pa.Array:
        return pc.take(pc.multiply(_integers(self._times), 1000), self._entry)

    def _is(self, *kinds: str) -> pa.Array:
        return pc.is_in(self.event, value_set=pa.array(kinds))

    def _where(self, mask: pa.Array, values: pa.Array) -> pa.Array:
        return pc.if_else(mask, values, pa.scalar(None, pa.string()))

    def _contents_of_rows(self, contents: dict[int, EventContents]) -> list[_Content | None]:
        """Return the content of each event, None for an event without one. Return [] if no event has one."""
        if not contents:
            return []
        events = zip(self._entry.to_pylist(), self.event.to_pylist(), self._job_id.to_pylist(), strict=True)
        nothing: EventContents = {}
        return [contents.get(at, nothing).get(job) if kind in WITH_CONTENT else None for at, kind, job in events]

    def _of_contents(self, part: int, kind: pa.DataType) -> pa.Array:
        if not self._contents:
            return pa.array([None] * len(self.event), kind)
        values = [None if each is None else each[part] for each in self._contents]
        return pa.array([None if value == "" else value for value in values], kind)

    def _or_content(self, values: pa.Array, part: int) -> pa.Array:
        return pc.coalesce(values, self._of_contents(part, pa.string())) if self._contents else values

    def _value(self) -> pa.Array:
        if not self._contents:
            return self._of_contents(3, pa.string())
        return pa.array([None if each is None else _json_of(each[3]) for each in self._contents], pa.string())

    def _name(self) -> pa.Array:
        return self._or_content(self._where(self._is("added"), self._detail()), 0)

    def _detail(self) -> pa.Array:
        # For an added job the detail is its name, followed by its ordering key.
        return _before(self._raw, KEY_SEP)

    def _key(self) -> pa.Array:
        keyed = pc.and_(self._is("added"), pc.match_substring(self._raw, KEY_SEP))
        of_added = self._where(keyed, pc.replace_substring_regex(self._raw, f"^[^{KEY_SEP}]*{KEY_SEP}", ""))
        return self._or_content(of_added, 1)

    def _delay(self) -> pa.Array:
        return pc.cast(_before(self._where(self._is("retrying", "limited"), self._raw), " "), pa.int64())

    def _reason(self) -> pa.Array:
        behind = pc.replace_substring_regex(self._where(self._is("retrying"), self._raw), "^[0-9]* ", "")
        return pc.coalesce(behind, self._where(self._is("failed"), self._raw))

    def _error_class(self) -> pa.Array:
        return _before(self._reason(), ": ")


def _json_of(packed: bytes | None) -> str | None:
    """Return a stored value as JSON, None if the default serializer cannot read it."""
    if packed is None:
        return None
    try:
        return to_json(_SERIALIZER.loads(packed))
    except (SerializationError, TypeError, ValueError, RecursionError):
        return None


def _before(texts: pa.Array, mark: str) -> pa.Array:
    return pc.list_element(pc.split_pattern(texts, mark, max_splits=1), 0)


def _integers(texts: list[bytes]) -> pa.Array:
    return pc.cast(pa.array(texts, pa.string()), pa.int64())
