"""Options of readers, and errors before anything is read."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from glidemq_async.spark.read.event_partition import EventPartition, loss_error, read_events
from glidemq_async.spark.read.event_stream import UnlimitedEventStream
from glidemq_async.spark.read.event_stream_limited import LimitedEventStream
from glidemq_async.spark.read.offsets import Loss
from glidemq_async.spark.read.options import ReadOptions, read_options
from glidemq_async.spark.read.schemas import SCHEMAS, arrow_schema, schema_of
from glidemq_async.spark.read.tables import FilteringTableReader, TableReader
from glidemq_async.spark.source import GlideMQDataSource

SECRET = "redis://user:hunter2@host:6379"
GIVEN = {"url": SECRET, "subscribe": "a, b"}


def options(_streaming: bool = False, /, **more: str) -> ReadOptions:
    return read_options(GIVEN | more, streaming=_streaming)


def test_names_of_options_ignore_case() -> None:
    found = options(True, STARTINGOFFSETS="Earliest", maxoffsetspertrigger="5", failondataloss="FALSE")
    assert (found.starting, found.max_offsets, found.fail_on_loss) == ("earliest", 5, False)
    assert found.queues == ("a", "b")


def test_defaults_depend_on_the_kind_of_read() -> None:
    assert (options(True).starting, options(False).starting) == ("latest", "earliest")
    assert options(True).fail_on_loss


def test_repeated_names_count_once() -> None:
    found = read_options({"url": "x", "kind": "jobs", "subscribe": "a, a", "ids": '["1", "2", "1"]'}, streaming=False)
    assert (found.queues, found.ids) == (("a",), ("1", "2"))


def test_an_instant_before_1970_becomes_0() -> None:
    assert options(startingTimestamp="1960-01-01").starting == (0,)


def test_a_name_with_a_comma_is_given_as_json() -> None:
    assert read_options({"url": "x", "subscribe": '["a,b"]'}, streaming=False).queues == ("a,b",)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 3}', {"a": 3}), ('{"a": "5-1/2"}', {"a": "5-1/2"}), ('{"a": "latest"}', {"a": "latest"}),
    ],
)  # fmt: skip
def test_positions_are_numbers_offsets_and_words(text: str, found: object) -> None:
    assert options(startingOffsets=text).starting == found


@pytest.mark.parametrize(
    ("text", "signs"), [(".*", r"\.\*"), ("mail.+", r"\.\+"), ("^mail", r"\^"), ("a$", r"\$"), ("a\\d", r"\\")]
)
def test_a_regular_expression_is_refused_as_pattern(text: str, signs: str) -> None:
    with pytest.raises(ValueError, match=rf"looks like a regular expression \({signs}\).*mail\[\.\]\*"):
        read_options({"url": "x", "subscribePattern": text}, streaming=False)


@pytest.mark.parametrize("text", ["*", "mail-*", "mail.eu", "mail[.]*", "a[$^]?", "[!ab]*"])
def test_a_file_name_pattern_is_accepted(text: str) -> None:
    assert read_options({"url": "x", "subscribePattern": text}, streaming=True).pattern == text


def test_times_are_milliseconds_or_have_a_zone() -> None:
    ms = 1_769_860_800_000
    for text in (str(ms), "2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "2026-01-31T12:00:00"):
        assert options(startingTimestamp=text).starting == (ms,), text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kind": "things"}, "kind must be one of"),
        ({"url": ""}, "the option url is missing"),
        ({"subscribe": ""}, "exactly one of subscribe"),
        ({"subscribePattern": "*"}, "got both"),
        ({"subscribe": "a{b"}, "contains '{'"),
        ({"startingOffsets": "{"}, "startingOffsets must be JSON"),
        ({"startingOffsets": '{"a": -1}'}, "must be the number"),
        ({"startingOffsets": '{"a": true}'}, "must be the number"),
        ({"startingOffsets": '{"a": "99999999999999999999-0"}'}, "must be the number"),
        ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "exclude each other"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"startingTimestamp": "9" * 30}, "milliseconds since 1970"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"fetchSize": "many"}, "at least 1"),
        ({"events": "added,begun"}, "got 'begun'"),
        ({"Username": "ada"}, "'username'.*rediss://user:password@host"),
        ({"states": "waiting"}, "the option 'states' does not exist for this read of kind=events"),
        ({"kind": "jobs", "startingOffsets": "latest"}, "does not exist for this read of kind=jobs"),
        ({"kind": "jobs", "states": "asleep"}, "got 'asleep'"),
        ({"kind": "dlq", "minPartitions": "4"}, "does not exist for this read of kind=dlq"),
        (
            {"maxoffsetspertrigger": "5"},
            r"'maxOffsetsPerTrigger' does not exist .* it needs a stream: use spark\.readStream",
        ),
        ({"startingoffset": "latest"}, "did you mean 'startingOffsets'"),
        ({"states": "waiting"}, "it needs kind=jobs, results"),
        ({"kind": "jobs", "failOnDataLoss": "true"}, "it needs kind=events"),
        ({"colour": "blue"}, "the options are .*subscribePattern"),
    ],
)
def test_wrong_options_are_refused(more: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_options(GIVEN | more, streaming=False)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kind": "jobs"}, "kind=jobs is not a stream"),
        ({"endingoffsets": "latest"}, r"'endingOffsets' does not exist .* it needs a table: use spark\.read$"),
        ({"maxTriggerDelay": "soon"}, "with one of the units"),
        ({"retainUncommitted": "true"}, "set publishPosition"),
    ],
)
def test_wrong_options_of_a_stream_are_refused(more: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_options(GIVEN | more, streaming=True)


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
@pytest.mark.parametrize(("version", "fits"), [((4, 0), False), ((4, 1), False), ((4, 2), True), ((5, 0), True)])
def test_limits_are_refused_where_they_would_be_ignored(
    monkeypatch: pytest.MonkeyPatch, option: str, version: tuple[int, int], fits: bool
) -> None:
    monkeypatch.setattr("glidemq_async.spark.read.options.spark_version", lambda: version)
    if fits:
        read_options(GIVEN | {option: "5"}, streaming=True)
        return
    with pytest.raises(ValueError, match=rf"{option} needs Spark 4.2 or newer, and this is 4\.{version[1]}"):
        read_options(GIVEN | {option: "5"}, streaming=True)


def test_the_reader_of_a_stream_fits_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    source = GlideMQDataSource(GIVEN)
    assert isinstance(source.streamReader(schema_of("events")), LimitedEventStream)
    monkeypatch.setattr("glidemq_async.spark.source.spark_version", lambda: (4, 1))
    assert isinstance(source.streamReader(schema_of("events")), UnlimitedEventStream)


def test_a_reader_takes_filters_only_with_pushdown() -> None:
    plain = GlideMQDataSource(GIVEN | {"kind": "jobs"}).reader(schema_of("jobs"))
    assert type(plain) is TableReader
    asked = GlideMQDataSource(GIVEN | {"kind": "jobs", "pushdown": "true"}).reader(schema_of("jobs"))
    assert type(asked) is FilteringTableReader


def test_pushed_filters_narrow_the_read() -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThan, In

    reader = FilteringTableReader(options(kind="jobs", states="failed"), schema_of("jobs"))
    kept = [EqualTo(("state",), "waiting"), GreaterThan(("priority",), 3), EqualTo(("key",), "k")]
    given: list[Any] = [In(("name",), ("x", "y")), *kept, EqualTo(("id",), "7")]
    assert list(reader.pushFilters(given)) == kept
    narrowed: Any = reader.__dict__["_options"]
    assert (narrowed.states, narrowed.names, narrowed.ids) == (("failed",), ("x", "y"), ("7",))


def test_passwords_stay_out_of_messages() -> None:
    assert "hunter2" not in repr(options())
    assert "hunter2" not in str(loss_error(Loss("a", "gone", "i", 1, 5), SECRET))
    assert "exactly 4 events" in str(loss_error(Loss("a", "gone", "i", 1, 5), SECRET))


@pytest.mark.parametrize("kind", SCHEMAS)
def test_readers_can_be_pickled(kind: str) -> None:
    source = GlideMQDataSource(GIVEN | {"kind": kind})
    assert source.schema() == schema_of(kind)
    assert pickle.loads(pickle.dumps(source.reader(schema_of(kind))))
    assert len(arrow_schema(schema_of(kind))) == len(schema_of(kind))
    if kind == "events":
        assert pickle.loads(pickle.dumps(source.streamReader(schema_of(kind))))


def test_the_placeholder_of_an_empty_plan_has_no_rows() -> None:
    from pyspark.sql.datasource import InputPartition

    assert list(read_events(InputPartition(None), options(), StructType())) == []
    assert pickle.loads(pickle.dumps(EventPartition("q", "i", "0-0", 0, 5, "1-0"))).stop == 5
