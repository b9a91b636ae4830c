"""Options of writes, and their errors."""

from __future__ import annotations

import pickle

import pytest

from glidemq_async.spark.write.options import WriteOptions
from glidemq_async.spark.write.row_reader import check_columns

LEAST = {"url": "redis://localhost", "queue": "q"}


def parse(**options: str) -> WriteOptions:
    return WriteOptions.parse({**LEAST, **options})


def test_the_defaults_match_the_documentation() -> None:
    found = parse()
    assert (found.id_mode, found.on_duplicate, found.on_invalid) == ("column", "skip", "fail")
    assert (found.batch_size, found.max_batch_bytes, found.pipeline_depth) == (50, 1024**2, 1)
    assert (found.dedup_ttl, found.backpressure_timeout, found.request_timeout) == (86400, 600, 30)
    assert (found.max_queue_depth, found.rate, found.max_retries) == (0, 0, 5)


def test_duplicates_may_end_a_write_or_only_be_counted() -> None:
    assert [parse(onDuplicate=word).on_duplicate for word in ("fail", "count-only")] == ["fail", "count-only"]
    with pytest.raises(ValueError, match="onDuplicate must be one of skip, fail, count-only"):
        parse(onDuplicate="replace")


def test_names_are_case_insensitive() -> None:
    assert parse(BATCHSIZE="7", maxqueuedepth="100").batch_size == 7
    assert parse(maxqueuedepth="100").resume_queue_depth == 80


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("500ms", 0.5)])
def test_durations_of_a_write_are_parsed(text: str, seconds: float) -> None:
    assert parse(dedupTtl=text).dedup_ttl == seconds


def test_sizes_and_rates_of_a_write_are_parsed() -> None:
    assert parse(maxBatchBytes="2m").max_batch_bytes == 2 * 1024**2
    assert parse(maxBatchBytes="500K").max_batch_bytes == 500 * 1024
    assert parse(maxRowsPerSecond="0.5").rate == 500


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": ""}, "option `url` is missing"),
        ({"queue": ""}, "the target is missing; set the option `queue`"),
        ({"queues": "a,b"}, "exclude each other"),
        ({"writeMode": "staged"}, "staged does not exist yet"),
        ({"writeMode": "other"}, "must be direct"),
        ({"path": "/x"}, "has no path"),
        ({"batchsise": "5"}, "did you mean 'batchSize'"),
        ({"codecs": "zstd"}, "unknown option 'codecs'"),
        ({"password": "s3cret"}, "'password'.*rediss://user:password@host"),
        ({"ssl_ca_certs": "/x"}, "'ssl_ca_certs'.*rediss://user:password@host"),
        ({"txnAppId": "a"}, "belong together"),
        ({"txnVersion": "1"}, "belong together"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "txnVersion must be a whole number"),
        ({"txnAppId": "a", "txnVersion": "1", "writeId": "w"}, "exclude each other"),
        ({"idMode": "hash"}, "needs idColumns"),
        ({"idColumns": "a"}, "needs idMode=hash"),
        ({"idMode": "row"}, "must be one of column, hash, none"),
        ({"batchSize": "501"}, "from 1 to 500"),
        ({"batchSize": "٣"}, "from 1 to 500"),
        ({"maxQueueDepth": "10", "resumeQueueDepth": "11"}, "from 0 to 10"),
        ({"dedupTtl": "91d"}, "from 0 to 7776000 seconds"),
        ({"requestTimeout": "0"}, "from 0.001 to 2147483648 seconds"),
        ({"idMode": "hash", "idColumns": "[a"}, "or a JSON list"),
        ({"idMode": "hash", "idColumns": "[1]"}, "or a JSON list"),
        ({"dedupTtl": "soon"}, "must be a duration"),
        ({"maxBatchBytes": "0"}, "number of bytes"),
        ({"maxRowsPerSecond": "nan"}, "number of rows"),
        ({"maxRowsPerSecond": "0.0001"}, "number of rows from 0.001"),
        ({"opts": "[1]"}, "JSON object"),
        ({"opts": "{"}, "JSON object"),
        ({"idPrefix": "a\x00"}, "control character"),
        ({"onInvalid": "ignore"}, "must be one of fail, dlq, drop"),
        ({"ignoreExtraColumns": "yes"}, "must be one of false, true"),
    ],
)
def test_wrong_values_of_options_are_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(**options)


@pytest.mark.parametrize(
    ("columns", "options", "why"),
    [
        (["name"], {}, "column `id` is missing"),
        (["id"], {}, "column `name` is missing"),
        (["id", "name", "extra"], {}, "unknown columns of a job: extra"),
        (["id", "name", "NAME"], {}, "exist twice"),
        (["name"], {"idMode": "hash", "idColumns": "a"}, "column `a` is missing"),
    ],
)
def test_wrong_columns_are_refused(columns: list[str], options: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_columns(columns, parse(**options))


def test_valid_columns_raise_no_error() -> None:
    check_columns(["ID", "Name", "data", "priority"], parse())
    check_columns(["id"], parse(name="n"))
    check_columns(["name"], parse(idMode="none"))
    check_columns(["name", "A"], parse(idMode="hash", idColumns="a"))
    check_columns(["id", "name", "extra"], parse(ignoreExtraColumns="true"))


def test_a_name_with_a_comma_is_given_as_json() -> None:
    assert parse(idMode="hash", idColumns='["a,b", "c"]').id_columns == ("a,b", "c")


def test_options_can_be_pickled_and_show_no_password() -> None:
    options = WriteOptions.parse({"url": "redis://u:s3cret@h", "queue": "q"})
    assert pickle.loads(pickle.dumps(options)) == options
    assert "s3cret" not in repr(options)
