"""Encode rows of a DataFrame as jobs: the five values that the server's functions take, or an error.

Each row is checked like the arguments of `Queue.add`. Column names are case-insensitive.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final, NamedTuple, cast

from glidemq_async.errors import GlideMQError, PayloadTooLarge, SerializationError
from glidemq_async.functions.calling import Arg
from glidemq_async.options.job_options import JobOptions, merge
from glidemq_async.options.stored_options import pack_extra, stored_form
from glidemq_async.options.table import JOB_OPTIONS
from glidemq_async.payloads.codecs.chain import MAGIC
from glidemq_async.payloads.serialization import JsonSerializer, MsgpackSerializer, Serializer
from glidemq_async.spark.write.columns import Columns
from glidemq_async.spark.write.options import WriteOptions
from glidemq_async.spark.write.simple_rows import SimpleRows
from glidemq_async.stored.names import check_id

__all__ = ["COLUMNS", "FIELDS", "EncodedRows", "InvalidRow", "RowReader", "check_columns"]

OPTION_COLUMNS: Final = tuple(name for name, option in JOB_OPTIONS.items() if option.column)
"""Columns with the name and the meaning of a job option."""
COLUMNS: Final = ("id", "name", "data", "queue", "opts", *OPTION_COLUMNS)
_NOT_PER_ROW: Final = ("job_id", "durability")
_CACHE_SIZE: Final = 10_000
_MAX_ID_LENGTH: Final = 120
FIELDS: Final = 5
"""Number of values of a job: id, name, data, opts, extra."""
_CHUNK_ROWS: Final = 250
"""Number of rows that are read together if all are simple. If one is not, the chunk is read row by row."""


class EncodedRows(NamedTuple):
    """Consecutive valid rows: their queue, their values as one flat list, and the size of each in bytes."""

    queue: str
    flat: list[Arg]
    sizes: list[int]


class InvalidRow(NamedTuple):
    """A row that is not a valid job: the reason, a digest of the row, its contents, and a label for errors.

    Neither `reason` nor `label` contains payload, because errors are copied to logs that other people can read.
    """

    reason: str
    digest: str
    shown: str
    label: str


def check_columns(names: Sequence[str], options: WriteOptions) -> None:
    """Raise ValueError unless a frame with these columns can be written with these options."""
    found = [name.lower() for name in names]
    _check_names(found, options)
    _require("id", found, options.id_mode == "column", "or choose idMode=hash with idColumns, or idMode=none")
    _require("name", found, not options.name, "or give the option `name`")
    _require("queue", found, options.by_column, "or give the option `queue` instead of `queues`")
    for name in _lower(options.id_columns):
        _require(name, found, True, "it is one of idColumns")


def _check_names(found: Sequence[str], options: WriteOptions) -> None:
    """Raise ValueError if a column exists twice or is not a column of a write."""
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise ValueError(
            f"the columns {', '.join(twice)} exist twice, because column names are case-insensitive; rename or drop one"
        )
    extra = [name for name in found if name not in COLUMNS and name not in _lower(options.id_columns)]
    if extra and not options.ignore_extra_columns:
        raise ValueError(
            f"unknown columns of a job: {', '.join(extra)}; a write takes {', '.join(COLUMNS)}. Move the values for "
            "the handler into `data` (jobs_frame does this), or set ignoreExtraColumns=true"
        )


def _lower(names: Iterable[str]) -> list[str]:
    return [name.lower() for name in names]


def _require(name: str, found: Sequence[str], needed: bool, otherwise: str) -> None:
    if needed and name not in found:
        raise ValueError(f"the column `{name}` is missing (found: {', '.join(found) or 'none'}); add it, {otherwise}")


class RowReader:
    """Encoder of rows, with the options of one write."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._known_queues = frozenset(options.queues)
        self._id_columns = _lower(options.id_columns)
        self._defaults = JobOptions(**_job_options(json.loads(options.opts))) if options.opts else JobOptions()
        self._plain = (stored_form(self._defaults), pack_extra(self._defaults))
        self._names: set[str] = set()
        self._cache: dict[object, tuple[bytes, bytes]] = {}
        self._serializer: Serializer = JsonSerializer() if options.serializer == "json" else MsgpackSerializer()
        self._dumps = self._serializer.dumps
        self._plain_rows = SimpleRows(options.serializer, options.id_prefix, options.payload_limit)

    def read(self, columns: Columns, count: int) -> Iterator[EncodedRows | InvalidRow]:
        """Yield `count` rows in their order: valid rows in batches, and each invalid row with its reason."""
        options = self._options
        used = {name: columns[name] for name in columns if name in COLUMNS or name in self._id_columns}
        # Rows with individual options, or with another kind of id, are read one by one.
        if (
            options.by_column
            or options.id_mode != "column"
            or options.serializer == "opaque"
            or "data" not in used
            or any(name in used for name in ("opts", *OPTION_COLUMNS))
        ):
            yield from self._one_by_one(used, range(count))
            return
        for start in range(0, count, _CHUNK_ROWS):
            yield from self._simple(used, range(start, min(start + _CHUNK_ROWS, count)))

    def _simple(self, used: Columns, rows: range) -> Iterator[EncodedRows | InvalidRow]:
        part = slice(rows.start, rows.stop)
        only, (wire, extra), one = self._options.queues[0], self._plain, self._options.name
        names = [one] * len(rows) if one else used["name"][part]
        plain = self._plain_rows.read(used["id"][part], names, used["data"][part])
        if plain is None:
            yield from self._one_by_one(used, rows)
            return
        ids, payloads = plain
        flat: list[Arg] = [b""] * (FIELDS * len(rows))
        flat[0::FIELDS], flat[1::FIELDS], flat[2::FIELDS] = ids, names, payloads
        flat[3::FIELDS], flat[4::FIELDS] = [wire] * len(rows), [extra] * len(rows)
        same = len(wire) + len(extra)
        lengths = zip(map(len, ids), map(len, names), map(len, payloads), strict=True)
        yield EncodedRows(only, flat, [a + b + c + same for a, b, c in lengths])

    def _one_by_one(self, used: Columns, rows: range) -> Iterator[EncodedRows | InvalidRow]:
        options = self._options
        names, queues = used.get("name"), used.get("queue")
        ids = used.get("id") if options.id_mode == "column" else None
        hashed = [used[name] for name in self._id_columns]
        data = used.get("data")
        chosen = [(name, used[name]) for name in ("opts", *OPTION_COLUMNS) if name in used]
        only = options.queues[0]
        for at in rows:
            job_id = ""
            try:
                name = self._name(options.name or (names[at] if names else None))
                queue = self._queue(queues[at] if queues else None) if options.by_column else only
                job_id = self._id(ids[at] if ids else None, [column[at] for column in hashed])
                payload = self._data(data[at]) if data else self._data(None)
                wire, extra = (
                    self._encode_options([(key, column[at]) for key, column in chosen]) if chosen else self._plain
                )
            except (ValueError, TypeError, OverflowError, GlideMQError) as error:
                found = {key: column[at] for key, column in used.items()}
                yield _invalid(str(error), found, job_id or (ids[at] if ids else None))
            else:
                size = len(payload) + len(job_id) + len(name) + len(wire) + len(extra)
                yield EncodedRows(queue, [job_id, name, payload, wire, extra], [size])

    def _name(self, name: Any) -> str:
        # Frames have few distinct names, so each is checked once. The limit protects the task from a frame that has a
        # different name in every row.
        if name not in self._names:
            if name is None:
                raise ValueError("the name of the job is null")
            check_id("job name", name)
            if len(self._names) < _CACHE_SIZE:
                self._names.add(name)
        return cast("str", name)

    def _queue(self, queue: Any) -> str:
        if queue not in self._known_queues:
            raise ValueError(f"the queue {queue!r} is not in the option queues={','.join(self._options.queues)}")
        return cast("str", queue)

    def _id(self, given: Any, hashed: list[Any]) -> str:
        options = self._options
        if options.id_mode == "none":
            return ""
        if options.id_mode == "hash":
            if all(value is None for value in hashed):
                raise ValueError(f"idMode=hash, but all of idColumns={','.join(options.id_columns)} are null")
            return options.id_prefix + _digest(hashed)
        return check_id("id", options.id_prefix + _id_text(given))

    def _data(self, value: Any) -> bytes:
        # The server stores these bytes as they are, and the workers decode them. A wrong encoding would only be noticed
        # by the handler of the job, so it is refused here, in the row that has it.
        if isinstance(value, bytes):
            payload = self._stored(value)
        elif self._options.serializer == "opaque":
            raise TypeError(f"serializer=opaque needs a binary column `data`, got {type(value).__name__}")
        elif isinstance(value, str):
            payload = self._dumps(_parse_json(value))
        else:
            payload = self._dumps(value)
        if len(payload) > self._options.payload_limit:
            raise PayloadTooLarge("data", len(payload), self._options.payload_limit, "payloadLimit")
        return payload

    def _stored(self, value: bytes) -> bytes:
        """Return bytes that are stored as they are. They must be readable, unless codecs sealed them."""
        if self._options.serializer != "opaque" and not value.startswith(MAGIC):
            try:
                self._serializer.loads(value)
            except SerializationError as error:
                raise SerializationError(
                    f"the bytes of data are not valid for serializer={self._options.serializer}: {error}; "
                    "encode them with this serializer, or set serializer=opaque to store them unchecked"
                ) from None
        return value

    def _encode_options(self, values: list[tuple[str, Any]]) -> tuple[bytes, bytes]:
        found = [(key, _to_number(value)) for key, value in values if value is not None]
        if not found:
            return self._plain
        same = tuple((key, _hashable(value)) for key, value in found)
        known = self._cache.get(same)
        if known is None:
            known = self._options_of(dict(found))
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            self._cache[same] = known
        return known

    def _options_of(self, found: dict[str, Any]) -> tuple[bytes, bytes]:
        text = found.pop("opts", None)
        given: object = {} if text is None else _load_json("opts", text)
        if not isinstance(given, dict):
            raise TypeError(f"opts must be a JSON object, got a {type(given).__name__}")
        options = merge(self._defaults, _job_options({**cast("dict[str, Any]", given), **found}))
        return stored_form(options), pack_extra(options)


def _in_utc(value: Any) -> object:
    """Convert the instants in values to UTC, so that ids do not depend on the time zone of the session."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, list):
        return [_in_utc(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _in_utc(item) for key, item in cast("dict[object, object]", value).items()}
    return value


_raw_decode: Final = json.JSONDecoder().raw_decode


def _parse_json(text: str) -> object:
    """Return the value of a JSON text. Only a text with spaces around it needs `json.loads`, which is twice as slow."""
    with suppress(ValueError, RecursionError):
        value, end = _raw_decode(text)
        if end == len(text):
            return value
    return _load_json("data", text)


def _load_json(what: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{what} is not valid JSON: {error}") from None
    except RecursionError:
        raise ValueError(
            f"{what} is a JSON text of {len(text):,} characters whose values are nested too deeply"
        ) from None


def _to_number(value: Any) -> Any:
    """Return a decimal as int or float. In SQL a literal such as 1.5 is a decimal, which options do not take."""
    if not isinstance(value, Decimal):
        return value
    return int(value) if value == value.to_integral_value() else float(value)


def _hashable(value: Any) -> object:
    return tuple(sorted(cast("dict[str, Any]", value).items())) if isinstance(value, dict) else value


def _job_options(found: dict[str, Any]) -> Any:
    """Convert job options from their JSON form."""
    for name in _NOT_PER_ROW:
        if name in found:
            raise TypeError(f"{name} cannot be an option of a row; remove it")
    return {name: JOB_OPTIONS[name].from_json(value) if name in JOB_OPTIONS else value for name, value in found.items()}


def _invalid(reason: str, row: dict[str, Any], job_id: object) -> InvalidRow:
    # The digest identifies the row when a task runs again. It is computed from the values and not from the position,
    # because Spark may read the rows of a partition in another order.
    shown = repr(row)
    digest = blake2b(shown.encode(errors="backslashreplace"), digest_size=12).hexdigest()
    which = f"the row with the id {repr(job_id)[:_MAX_ID_LENGTH]}" if job_id else "a row without an id"
    types = ", ".join(f"{name}: {'null' if value is None else type(value).__name__}" for name, value in row.items())
    return InvalidRow(reason, digest, shown, f"{which} ({types})")


def _digest(values: list[Any]) -> str:
    # The digest must be the same in every run, on every executor and in every time zone, because a rerun finds its jobs
    # by id. Msgpack distinguishes 1 from "1", and the text of a value does not.
    return blake2b(MsgpackSerializer().dumps(_in_utc(values)), digest_size=16).hexdigest()


def _id_text(given: Any) -> str:
    if given is None or given == "":
        raise ValueError("the row has no id: the column `id` is null or empty")
    # Some sources deliver integers as decimals of scale 0. Other decimals are refused, because 1.0 and
    # 1.00 are equal and would be two ids.
    if isinstance(given, Decimal) and given.as_tuple().exponent == 0:
        given = int(given)
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    if not isinstance(given, str):
        raise TypeError(f"an id must be a string or a whole number, got {given!r}")
    return given
