"""The options of `format("glidemq")` for writing, parsed and checked.

Spark passes options as strings with case-insensitive names. The planner checks all of them before a task starts, and
sends the result to the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, Literal, TypeVar, cast, get_args

from glidemq_async.client.payload_coder import DEFAULT_LIMIT
from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.durations import to_ms
from glidemq_async.functions.writes import MOST_JOBS
from glidemq_async.spark.connection import belongs_in_url
from glidemq_async.stored.names import QueueKeys, check_id

__all__ = ["IdMode", "OnDuplicate", "OnInvalid", "WriteOptions"]

IdMode = Literal["column", "hash", "none"]
OnDuplicate = Literal["skip", "fail", "count-only"]
OnInvalid = Literal["fail", "dlq", "drop"]
SerializerName = Literal["msgpack", "json", "opaque"]
_Choice = TypeVar("_Choice", bound=str)

NAMES: Final = (
    "url",
    "prefix",
    "queue",
    "queues",
    "name",
    "idMode",
    "idColumns",
    "idPrefix",
    "onDuplicate",
    "onInvalid",
    "writeMode",
    "writeId",
    "txnAppId",
    "txnVersion",
    "dedupTtl",
    "batchSize",
    "maxBatchBytes",
    "pipelineDepth",
    "maxQueueDepth",
    "resumeQueueDepth",
    "backpressureTimeout",
    "maxRowsPerSecond",
    "requestTimeout",
    "maxRetries",
    "ignoreExtraColumns",
    "opts",
    "serializer",
    "payloadLimit",
)
"""All options, spelled as in docs/spark-write.md."""
# Options that Spark itself adds.
_OF_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZES: Final = {"k": 1024, "m": 1024**2}
_MOST_TTL: Final = 90 * 86400


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of one write. Durations are seconds. docs/spark-write.md explains each option."""

    url: str = field(repr=False)
    queues: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX
    by_column: bool = False
    name: str = ""
    id_mode: IdMode = "column"
    id_columns: tuple[str, ...] = ()
    id_prefix: str = ""
    on_duplicate: OnDuplicate = "skip"
    on_invalid: OnInvalid = "fail"
    write_id: str = ""
    txn_app_id: str = ""
    txn_version: int = 0
    dedup_ttl: float = 86400.0
    batch_size: int = 50
    max_batch_bytes: int = 1024 * 1024
    pipeline_depth: int = 1
    max_queue_depth: int = 0
    resume_queue_depth: int = 0
    backpressure_timeout: float = 600.0
    max_rows_per_second: float = 0.0
    request_timeout: float = 30.0
    max_retries: int = 5
    ignore_extra_columns: bool = False
    opts: str = ""
    serializer: SerializerName = "msgpack"
    checkpoint: str = ""
    payload_limit: int = DEFAULT_LIMIT

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse the options of a write. Raises ValueError with the option, its value and the valid values."""
        given = {name.lower(): value for name, value in options.items()}
        _refuse_unknown(given)
        read = _Reader(given)
        _check_mode(read)
        queues, by_column = _queues(read)
        app, version = _transaction(read)
        depth = read.number("maxQueueDepth", 0)
        id_mode, id_columns = _identity(read)
        return cls(
            url=read.required("url"),
            queues=queues,
            by_column=by_column,
            prefix=read.text("prefix", DEFAULT_PREFIX),
            name=_id(read, "name"),
            id_mode=id_mode,
            id_columns=id_columns,
            id_prefix=_id(read, "idPrefix"),
            on_duplicate=read.choice("onDuplicate", get_args(OnDuplicate)),
            on_invalid=read.choice("onInvalid", get_args(OnInvalid)),
            write_id=_id(read, "writeId"),
            txn_app_id=app,
            txn_version=version,
            dedup_ttl=read.seconds("dedupTtl", 86400, most=_MOST_TTL),
            batch_size=read.number("batchSize", 50, least=1, most=MOST_JOBS),
            max_batch_bytes=read.size("maxBatchBytes", 1024 * 1024),
            pipeline_depth=read.number("pipelineDepth", 1, least=1, most=64),
            max_queue_depth=depth,
            resume_queue_depth=read.number("resumeQueueDepth", depth * 4 // 5, most=depth),
            backpressure_timeout=read.seconds("backpressureTimeout", 600),
            max_rows_per_second=read.rate("maxRowsPerSecond"),
            request_timeout=read.seconds("requestTimeout", 30, least=0.001),
            max_retries=read.number("maxRetries", 5),
            ignore_extra_columns=read.flag("ignoreExtraColumns"),
            opts=_opts(read),
            serializer=read.choice("serializer", get_args(SerializerName)),
            payload_limit=read.size("payloadLimit", DEFAULT_LIMIT),
            checkpoint=read.text("checkpointLocation", ""),
        )

    def keys(self, queue: str) -> QueueKeys:
        """Return the store keys of one of the queues."""
        return QueueKeys(self.prefix, queue)

    @property
    def ttl_ms(self) -> int:
        """Time for which the server stores the ids of the write, in milliseconds."""
        return to_ms("dedupTtl", self.dedup_ttl)

    @property
    def rate(self) -> int:
        """Maximum rate in thousandths of a row per second; 0 is unlimited."""
        return round(self.max_rows_per_second * 1000)


def _refuse_unknown(given: Mapping[str, str]) -> None:
    spelled = {name.lower(): name for name in NAMES}
    for name in given:
        if name not in spelled and name not in _OF_SPARK:
            near = get_close_matches(name, spelled, n=1)
            hint = f"did you mean {spelled[near[0]]!r}?" if near else f"the options are {', '.join(NAMES)}"
            hint = belongs_in_url(name) or hint
            raise ValueError(f"unknown option {name!r} of a write to glidemq: {hint}")


def _check_mode(read: _Reader) -> None:
    mode = read.text("writeMode", "direct")
    if mode == "staged":
        raise ValueError(
            "writeMode=staged does not exist yet; use writeMode=direct: its jobs are visible immediately, and a rerun "
            "adds the missing jobs without duplicates"
        )
    if mode != "direct":
        raise ValueError(f"writeMode must be direct, got {mode!r}")
    if read.text("path", ""):
        raise ValueError("a write to glidemq has no path; set the option `queue`, and call .save() without a path")


def _queues(read: _Reader) -> tuple[tuple[str, ...], bool]:
    one, several = read.text("queue", ""), read.names("queues")
    if one and several:
        raise ValueError("queue and queues exclude each other; use `queues` only with a column `queue`")
    if not one and not several:
        raise ValueError("the target is missing; set the option `queue`, or `queues` together with a column `queue`")
    return (one,) if one else several, not one


def _transaction(read: _Reader) -> tuple[str, int]:
    app, version = _id(read, "txnAppId"), read.text("txnVersion", "")
    if bool(app) != bool(version):
        raise ValueError("txnAppId and txnVersion belong together; set both or neither")
    if app and read.text("writeId", ""):
        raise ValueError("writeId and txnAppId exclude each other, because the transaction names the write; remove one")
    return app, read.number("txnVersion", 0, most=2**53)


def _identity(read: _Reader) -> tuple[IdMode, tuple[str, ...]]:
    mode = read.choice("idMode", get_args(IdMode))
    columns = read.names("idColumns")
    if mode == "hash" and not columns:
        raise ValueError("idMode=hash needs idColumns; set it to the columns that identify a row")
    if mode != "hash" and columns:
        raise ValueError(f"idColumns needs idMode=hash, got idMode={mode}")
    return mode, columns


def _id(read: _Reader, name: str) -> str:
    value = read.text(name, "")
    return check_id(name, value) if value else ""


def _opts(read: _Reader) -> str:
    text = read.text("opts", "")
    if text:
        try:
            found: object = json.loads(text)
        except ValueError as error:
            raise ValueError(f"opts must be a JSON object of job options: {error}") from None
        if not isinstance(found, dict):
            raise ValueError(f"opts must be a JSON object of job options, got {text!r}")
    return text


class _Reader:
    """Parser of option values. Its errors contain the name of the option."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str, default: str) -> str:
        return self._given.get(name.lower(), default)

    def required(self, name: str) -> str:
        value = self.text(name, "")
        if not value:
            raise ValueError(f"the option `{name}` is missing")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list: names separated by commas, or a JSON list if names contain commas."""
        text = self.text(name, "").strip()
        if not text.startswith("["):
            return tuple(part for part in (part.strip() for part in text.split(",")) if part)
        try:
            found: object = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(isinstance(each, str) for each in cast("list[object]", found)):
            raise ValueError(f"{name} must be names separated by commas, or a JSON list of them, got {text!r}")
        return tuple(cast("list[str]", found))

    def choice(self, name: str, valid: tuple[_Choice, ...]) -> _Choice:
        value = self.text(name, valid[0])
        for choice in valid:
            if choice == value:
                return choice
        raise ValueError(f"{name} must be one of {', '.join(valid)}, got {value!r}")

    def flag(self, name: str) -> bool:
        return self.choice(name, ("false", "true")) == "true"

    def number(self, name: str, default: int, *, least: int = 0, most: int = 2**31 - 1) -> int:
        text = self.text(name, str(default))
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise ValueError(f"{name} must be a whole number from {least} to {most}, got {text!r}")
        return int(text)

    def rate(self, name: str) -> float:
        text = self.text(name, "0")
        value = _float(text)
        if value is None or not (value == 0 or 0.001 <= value <= 1e9):
            raise ValueError(f"{name} must be 0 (off) or a number of rows from 0.001 to 1000000000, got {text!r}")
        return value

    def seconds(self, name: str, default: float, *, least: float = 0, most: float = 2**31) -> float:
        text = self.text(name, str(default)).strip().lower()
        unit = next((unit for unit in _UNITS if text.endswith(unit) and _float(text[: -len(unit)]) is not None), "")
        value = _float(text[: -len(unit)] if unit else text)
        if value is None:
            raise ValueError(
                f"{name} must be a duration such as 30s, 10m or 24h (a plain number is seconds), got {text!r}"
            )
        seconds = value * _UNITS.get(unit, 1)
        if not least <= seconds <= most:
            raise ValueError(f"{name} must be a duration from {least:g} to {most:.10g} seconds, got {text!r}")
        return seconds

    def size(self, name: str, default: int) -> int:
        text = self.text(name, str(default)).strip().lower()
        number, unit = (text[:-1], _SIZES[text[-1]]) if text and text[-1] in _SIZES else (text, 1)
        if not number.isascii() or not number.isdigit() or int(number) == 0:
            raise ValueError(f"{name} must be a number of bytes such as 1000000, 500k or 1m, got {text!r}")
        return int(number) * unit


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None
