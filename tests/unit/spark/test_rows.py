"""Rows as jobs: the stored values, and invalid rows."""

# pyarrow comes without annotations.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, NamedTuple

import msgpack
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    VariantVal,
    YearMonthIntervalType,
)

from glidemq_async.options.stored_options import read_options, unpack_extra
from glidemq_async.payloads.serialization import MsgpackSerializer
from glidemq_async.spark.write.columns import check_types, columns_of_batch, columns_of_rows
from glidemq_async.spark.write.options import WriteOptions
from glidemq_async.spark.write.row_reader import FIELDS, InvalidRow, RowReader


class Prepared(NamedTuple):
    """Return a valid row."""

    queue: str
    values: tuple[Any, ...]
    size: int


def read(columns: dict[str, list[Any]], **options: str) -> list[Prepared | InvalidRow]:
    reader = RowReader(WriteOptions.parse({"url": "redis://h", "queue": "q", **options}))
    found: list[Prepared | InvalidRow] = []
    for run in reader.read(columns, len(next(iter(columns.values())))):
        if isinstance(run, InvalidRow):
            found.append(run)
        else:
            rows = [tuple(run.flat[at : at + FIELDS]) for at in range(0, len(run.flat), FIELDS)]
            found += [Prepared(run.queue, values, size) for values, size in zip(rows, run.sizes, strict=True)]
    return found


def job(**values: Any) -> Prepared:
    (row,) = read({name: [value] for name, value in {"id": "a", "name": "n", **values}.items()})
    assert isinstance(row, Prepared), row
    return row


def reason(options: dict[str, str] | None = None, **values: Any) -> str:
    columns = {name: [value] for name, value in {"id": "a", "name": "n", **values}.items()}
    (row,) = read(columns, **options or {})
    assert isinstance(row, InvalidRow), row
    return row.reason


def test_a_simple_row_is_a_simple_add() -> None:
    assert job(data='{"x": 1}') == Prepared("q", ("a", "n", msgpack.packb({"x": 1}), b"", b""), 6)


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (None, None),
        ('"text"', "text"),
        ("[1, 2.5]", [1, 2.5]),
        ({"n": 1, "when": datetime(2026, 1, 1, tzinfo=UTC)}, {"n": 1, "when": datetime(2026, 1, 1, tzinfo=UTC)}),
        (Decimal("1.50"), Decimal("1.50")),
        (msgpack.packb({"a": b"b"}), {"a": b"b"}),
    ],
)
def test_data_are_stored_as_an_add_stores_them(given: Any, seen: Any) -> None:
    assert MsgpackSerializer().loads(job(data=given).values[2]) == seen


def test_sealed_bytes_are_stored_unchanged() -> None:
    assert job(data=b"\xc1sealed").values[2] == b"\xc1sealed"


def test_a_queue_with_json_gets_json() -> None:
    (row,) = read({"id": ["a"], "name": ["n"], "data": ['{"x": 1}']}, serializer="json")
    assert isinstance(row, Prepared)
    assert row.values[2] == b'{"x":1}'


def test_opaque_payloads_are_not_checked() -> None:
    (row,) = read({"id": ["a"], "name": ["n"], "data": [b"\x00any"]}, serializer="opaque")
    assert isinstance(row, Prepared)
    assert row.values[2] == b"\x00any"
    assert "needs a binary column" in reason({"serializer": "opaque"}, data="text")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"id": None}, "null or empty"),
        ({"id": ""}, "null or empty"),
        ({"id": "a\nb"}, "control character"),
        ({"id": "x" * 513}, "at most 512"),
        ({"id": 1.5}, "string or a whole number"),
        ({"name": None}, "name of the job is null"),
        ({"data": "{"}, "not valid JSON"),
        ({"data": b"\x92\x01"}, "serializer=opaque to store them unchecked"),
        ({"data": "9" * 30}, "more than 64"),
        ({"priority": -1}, "priority must be"),
        ({"delay": 1.0, "at": datetime(2026, 1, 1, tzinfo=UTC)}, "cannot be combined"),
        ({"opts": "7"}, "opts must be a JSON object"),
        ({"opts": '{"atempts": 2}'}, "did you mean 'attempts'"),
        ({"opts": '{"job_id": "x"}'}, "job_id cannot be"),
        ({"opts": '{"backoff": {"kind": "wild"}}'}, "kind of a backoff"),
    ],
)
def test_invalid_rows_have_a_reason(values: dict[str, Any], why: str) -> None:
    assert why in reason(**values)


@pytest.mark.parametrize("column", ["data", "opts"])
def test_a_json_text_that_is_nested_too_deeply_is_invalid(column: str) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    given: dict[str, Any] = {column: deep}
    assert "deep" in reason(None, **given)
    (row, _) = read({"id": ["a", "b"], "name": ["n", "n"], "data": [deep, "1"]})
    assert isinstance(row, InvalidRow)


def test_a_payload_has_a_limit() -> None:
    assert "limit" in reason({"payloadLimit": "10"}, data='"12345678901"')


def test_options_of_a_row_take_precedence_over_the_write() -> None:
    rows = read(
        {"id": ["a", "b", "c"], "name": ["n"] * 3, "attempts": [None, 5, None], "key": [None, None, "k"]},
        opts='{"attempts": 2}',
    )
    found = [row.values[3:] for row in rows if isinstance(row, Prepared)]
    assert [read_options(wire).attempts for wire, _ in found] == [2, 5, 2]
    assert [unpack_extra(extra) for _, extra in found] == [{}, {}, {"key": "k", "cost": 1000}]


def test_every_option_of_json_is_read() -> None:
    text = (
        '{"backoff": {"kind": "exponential", "delay": 2}, "keep_failed": {"count": 3}, "at": "2026-01-01T00:00:00Z",'
        ' "deduplication": {"id": "d", "ttl": 5, "mode": "throttle"}}'
    )
    values = job(opts=text).values
    options = read_options(values[3])
    assert options.backoff is not None
    assert (options.backoff.initial, options.keep_failed.count if options.keep_failed else None) == (2.0, 3)
    extra = msgpack.unpackb(values[4])
    assert extra == {"at": 1767225600000, "dedup": {"id": "d", "mode": "throttle", "ttl": 5000}}


def test_hashed_ids_depend_on_the_values_only() -> None:
    columns: dict[str, list[Any]] = {"name": ["n"] * 3, "a": [1, 1, None], "b": ["x", "x", None]}
    rows = read(columns, idMode="hash", idColumns="A,b", idPrefix="p-")
    first, second, third = rows
    assert isinstance(first, Prepared)
    assert isinstance(second, Prepared)
    assert first.values[0] == second.values[0] == "p-3319158c7b6cd061c2ce5aba6bf38822"
    assert isinstance(third, InvalidRow)
    assert "are null" in third.reason


def test_hashed_ids_are_the_same_in_every_time_zone() -> None:
    def ids(zone: tzinfo) -> list[str]:
        at = datetime(2026, 7, 1, 12, tzinfo=UTC).astimezone(zone)
        rows = read({"name": ["n"], "a": [at], "b": [[{"at": at}]]}, idMode="hash", idColumns="a,b")
        return [row.values[0] for row in rows if isinstance(row, Prepared)]

    assert ids(timezone(timedelta(hours=9))) == ids(UTC) != []


def test_decimals_are_numbers() -> None:
    values = job(id=Decimal(17), delay=Decimal("0.1"), timeout=Decimal("30.0"), priority=Decimal(2)).values
    assert values == job(id=17, delay=0.1, timeout=30, priority=2).values
    assert "string or a whole number" in reason(id=Decimal("1.0"))


@pytest.mark.parametrize(
    ("columns", "options", "label"),
    [
        (
            {"id": "a", "name": "n", "data": '{"pin": hunter2'},
            {},
            "the row with the id 'a' (id: str, name: str, data: str)",
        ),
        ({"id": "a", "name": "n", "data": b"hunter2"}, {}, "the row with the id 'a' (id: str, name: str, data: bytes)"),
        ({"id": 7, "name": None, "data": "hunter2"}, {}, "the row with the id 7 (id: int, name: null, data: str)"),
        ({"id": None, "name": "n", "data": "hunter2"}, {}, "a row without an id (id: null, name: str, data: str)"),
        ({"id": "a", "name": "n", "opts": '"hunter2"'}, {}, "the row with the id 'a' (id: str, name: str, opts: str)"),
        ({"name": "n", "data": "hunter2"}, {"idMode": "none"}, "a row without an id (name: str, data: str)"),
        (
            {"mail": "hunter2", "name": "n", "data": {"pin": [object(), "hunter2"]}},
            {"idMode": "hash", "idColumns": "mail", "idPrefix": "p"},
            "the row with the id 'p",
        ),
    ],
)
def test_an_error_identifies_the_row_without_its_contents(
    columns: dict[str, Any], options: dict[str, str], label: str
) -> None:
    (row,) = read({name: [value] for name, value in columns.items()}, **options)
    assert isinstance(row, InvalidRow)
    assert row.label.startswith(label)
    assert "hunter2" not in row.label + row.reason
    assert "hunter2" in row.shown


def test_the_id_of_one_row_is_not_in_the_label_of_the_next() -> None:
    _, row = read({"id": ["a", None], "name": ["n", "n"], "data": ["1", "1"]})
    assert isinstance(row, InvalidRow)
    assert row.label.startswith("a row without an id")


def test_two_invalid_rows_have_different_digests() -> None:
    rows = read({"id": [None, None, ""], "name": ["a", "b", "a"]})
    assert len({row.digest for row in rows if isinstance(row, InvalidRow)}) == 3


def test_maps_in_batches_are_dicts_at_any_depth() -> None:
    inner = pa.map_(pa.string(), pa.int64())
    kind = pa.struct([("m", inner), ("l", pa.list_(inner)), ("n", pa.int32())])
    value = {"m": [("a", 1)], "l": [[("b", 2)], None], "n": 3}
    batch = pa.record_batch({"Data": pa.array([value, None], kind)})
    assert columns_of_batch(batch)["data"] == [{"m": {"a": 1}, "l": [{"b": 2}, None], "n": 3}, None]


def test_a_variant_in_a_batch_is_its_value_at_any_depth() -> None:
    marked = pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"})
    kind = pa.struct([pa.field("value", pa.binary(), nullable=False), marked])
    one = {"value": b"\x02\x01\x00\x00\x02\x0c\x01", "metadata": b"\x01\x01\x00\x01a"}  # {"a": 1}
    batch = pa.record_batch(
        {"data": pa.array([one, None], kind), "m": pa.array([[("k", one)], []], pa.map_("str", kind))}
    )
    found = columns_of_batch(batch)
    assert found == {"data": [{"a": 1}, None], "m": [{"k": {"a": 1}}, {}]}
    like_it = pa.record_batch({"data": pa.array([one], pa.struct([("value", pa.binary()), ("metadata", pa.binary())]))})
    assert columns_of_batch(like_it)["data"] == [one]


def test_values_of_rows_equal_values_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        inner = StructType().add("b", "binary").add("at", "timestamp")
        schema = (
            StructType().add("ID", "integer").add("data", inner).add("l", ArrayType(inner)).add("raw", "binary")
            .add("m", MapType(StringType(), inner)).add("local", "timestamp_ntz").add("v", "variant")
        )  # fmt: skip
        local = datetime(2026, 1, 1, 9)  # noqa: DTZ001 - as Spark has it
        one, other = Row(b=bytearray(b"x"), at=local), Row(b=None, at=None)
        variant = VariantVal(b"\x02\x01\x00\x00\x02\x0c\x01", b"\x01\x01\x00\x01a")
        rows = [(1, one, [one, None], bytearray(b"x"), {"k": one}, local, variant), (2, other, *[None] * 5)]
        found = columns_of_rows(rows, schema)
    finally:
        monkeypatch.undo()
        time.tzset()
    seen = {"b": b"x", "at": datetime(2026, 1, 1, tzinfo=UTC)}
    assert found == {
        "id": [1, 2],
        "data": [seen, {"b": None, "at": None}],
        "l": [[seen, None], None],
        "raw": [b"x", None],
        "m": [{"k": seen}, None],
        "local": [local, None],
        "v": [{"a": 1}, None],
    }
    assert columns_of_rows([], schema)["id"] == []


@pytest.mark.parametrize(
    "inner",
    [YearMonthIntervalType(), StructType().add("a", ArrayType(MapType(IntegerType(), YearMonthIntervalType())))],
)
def test_months_are_refused_before_anything_is_written(inner: DataType) -> None:
    check_types(StructType().add("id", "string"))
    with pytest.raises(ValueError, match=r"column `data` contains .*interval"):
        check_types(StructType().add("id", "string").add("data", inner))


@pytest.mark.parametrize(
    ("column", "odd"),
    [
        ("id", ""),
        ("id", None),
        ("id", "two\nlines"),
        ("id", "x" * 513),
        ("name", None),
        ("name", "two\nlines"),
        ("data", "{"),
        ("data", ""),
        ("data", '"\\ud800"'),
        ("data", f"{2**64}"),
        ("data", f'"{"x" * 100}"'),
    ],
)
def test_an_invalid_row_does_not_change_the_rows_around_it(column: str, odd: object) -> None:
    columns: dict[str, list[Any]] = {"id": [f"é{i}" for i in range(600)], "name": ["n"] * 600, "data": [" [1]"] * 600}
    columns["id"][:300], columns["data"][:300] = [f"a{i}" for i in range(300)], ["[1]"] * 300
    columns[column][100] = odd
    rows = read(columns, payloadLimit="100")
    assert [number for number, row in enumerate(rows) if isinstance(row, InvalidRow)] == [100]
    payload = msgpack.packb([1])
    for number, row in enumerate(rows):
        if number != 100:
            values = (columns["id"][number], "n", payload, b"", b"")
            assert row == Prepared("q", values, len(payload) + len(values[0]) + 1)


def test_an_id_with_its_prefix_is_as_long_as_an_id_may_be() -> None:
    columns: dict[str, list[Any]] = {"id": ["x" * 10, "x" * 11], "name": ["n", "n"], "data": ["1", "1"]}
    longest, longer = read(columns, idPrefix="é" * 251)
    assert isinstance(longest, Prepared)
    assert isinstance(longer, InvalidRow)
