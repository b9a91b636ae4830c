"""The options of a job: refusals, the override of defaults, and the stored form for workers."""

import copy
import pickle
from datetime import UTC, datetime, timedelta
from typing import cast

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glidemq_async.errors import PayloadTooLarge, SerializationError
from glidemq_async.options.backoff import Backoff
from glidemq_async.options.deduplication import Deduplication
from glidemq_async.options.job_options import JobOptions, JobOptionsDict, KeepJobs, explicit, merge
from glidemq_async.options.retention import age_ms
from glidemq_async.options.stored_options import ReplyTo, pack_extra, read_options, stored_form, to_extra, unpack_extra

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


MALFORMED: list[object] = [
    1,
    [1],
    {"a": 0},
    {"a": "2"},
    {"b": 5},
    {"b": {}},
    {"t": "x"},
    {"l": 1},
    {"c": [1]},
    {"c": 5},
    {"f": ["a", 1]},
    {"r": 0},
    {"r": "x"},
    {"h": [1]},
    {"h": {"a": 1}},
]


def build(**options: object) -> JobOptions:
    return JobOptions(**cast("JobOptionsDict", options))


@pytest.mark.smoke
def test_without_options_all_defaults_apply() -> None:
    options = JobOptions()
    assert options.attempts == 1
    assert options.headers == {}
    assert options.durability == "default"
    assert [options.delay, options.at, options.backoff, options.timeout, options.job_id] == [None] * 5
    assert explicit(options) == {}
    assert repr(options) == "JobOptions()"


def test_values_are_normalized() -> None:
    options = JobOptions(delay=timedelta(minutes=1), backoff=2, keep_completed=True, keep_failed=5, ttl=90.5)
    assert options.delay == 60
    assert to_extra(options) == {"delay": 60_000, "ttl": 90_500}
    assert options.backoff == Backoff.fixed(2)
    assert options.keep_completed == KeepJobs()
    assert options.keep_failed == KeepJobs(count=5)
    assert JobOptions(keep_failed=False).keep_failed == KeepJobs(count=0)
    assert to_extra(JobOptions(at=NOON)) == {"at": 1_893_499_200_000}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"delay": -1}, ValueError, "delay must not be negative, got -1"),
        ({"delay": float("nan")}, ValueError, "delay must be a finite number"),
        ({"delay": "1"}, TypeError, "delay must be seconds .* not '1'"),
        ({"delay": 1, "at": NOON}, ValueError, "delay=1.* and at=.* cannot be combined"),
        ({"at": datetime(2030, 1, 1)}, ValueError, "at must have a time zone"),  # noqa: DTZ001
        ({"at": 5}, TypeError, "at must be a datetime, not 5"),
        ({"attempts": 0}, ValueError, "attempts must be from 1 to .* got 0"),
        ({"attempts": True}, TypeError, "attempts must be an int, not True"),
        ({"attempts": 1.5}, TypeError, "attempts must be an int, not 1.5"),
        ({"attempts": None}, TypeError, "attempts must be an int, not None"),
        ({"attempts": 2**40}, ValueError, "attempts must be from 1"),
        ({"backoff": -1}, ValueError, "backoff must not be negative"),
        ({"backoff": "fast"}, TypeError, "backoff must be seconds"),
        ({"timeout": 0}, ValueError, "timeout must be more than zero"),
        ({"ttl": 0}, ValueError, "ttl must be more than zero"),
        ({"result_ttl": 0}, ValueError, "result_ttl must be more than zero"),
        ({"result_ttl": "1h"}, TypeError, "result_ttl must be seconds .* not '1h'"),
        ({"lock_duration": 0.5}, ValueError, "lock_duration must be from 1 second to 24 hours, got 0.5"),
        ({"lock_duration": 86_401}, ValueError, "lock_duration must be from 1 second"),
        ({"keep_completed": -1}, ValueError, "keep_completed must be from 0"),
        ({"keep_failed": 1.5}, TypeError, "keep_failed must be a bool, a number of jobs or KeepJobs"),
        ({"job_id": ""}, ValueError, "job_id must not be empty"),
        ({"job_id": 7}, TypeError, "job_id must be a str, not 7"),
        ({"headers": {"a": 1}}, TypeError, "headers must map str to str, got 'a': 1"),
        ({"headers": "a=b"}, TypeError, "headers must be a mapping"),
        ({"headers": {"a": "\ud800"}}, ValueError, "headers contains a lone surrogate"),
        ({"headers": {"a": "b" * 70_000}}, PayloadTooLarge, "headers is 70001 bytes"),
        (
            {"durability": "disk"},
            ValueError,
            "durability must be one of default, replicated, fsync, got 'disk'",
        ),
        ({"durability": ["fsync"]}, ValueError, "durability must be one of"),
    ],
)
def test_bad_values_are_refused_by_name(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(**options)


@pytest.mark.parametrize("edge", [{"lock_duration": 1}, {"lock_duration": 86_400}, {"attempts": 2**31 - 1}])
def test_values_at_the_bounds_are_accepted(edge: dict[str, object]) -> None:
    assert explicit(build(**edge)) == edge


def test_unknown_options_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(TypeError, match="unknown job option 'atempts': did you mean 'attempts'"):
        build(atempts=3)
    with pytest.raises(TypeError, match="unknown job option 'zzz': the options are job_id, delay"):
        build(zzz=3)
    with pytest.raises(TypeError, match="'time_out'"):
        merge(JobOptions(), {"time_out": 3})


def test_keep_jobs_refuses_negative_bounds() -> None:
    assert age_ms(KeepJobs(age=timedelta(hours=1))) == 3_600_000
    with pytest.raises(ValueError, match="age must not be negative"):
        KeepJobs(age=-1)
    with pytest.raises(ValueError, match="count must be from 0"):
        KeepJobs(count=-1)


def test_retention_accepts_bools_and_counts() -> None:
    options = JobOptions(keep_completed=False, keep_failed=True)
    assert (options.keep_completed, options.keep_failed) == (KeepJobs(count=0), KeepJobs())
    assert JobOptions(keep_failed=7).keep_failed == KeepJobs(count=7)
    assert JobOptions().keep_completed is None


def test_explicit_options_win_even_when_they_equal_the_default() -> None:
    default = JobOptions(attempts=3, timeout=10, headers={"a": "b"})
    assert merge(default, {}) is default
    assert merge(default, {"attempts": 1}).attempts == 1
    assert merge(default, JobOptions(attempts=1)).attempts == 1
    assert merge(default, JobOptions(delay=5)) == JobOptions(attempts=3, timeout=10, headers={"a": "b"}, delay=5)
    assert merge(default, {"timeout": None}).timeout is None
    assert merge(default, {"headers": {"c": "d"}}).headers == {"c": "d"}


def test_delay_and_at_replace_each_other_in_a_merge() -> None:
    assert merge(JobOptions(delay=5), {"at": NOON}) == JobOptions(at=NOON)
    assert merge(JobOptions(at=NOON), JobOptions(delay=5)) == JobOptions(delay=5)
    assert merge(JobOptions(at=NOON), {"delay": None}).at == NOON
    with pytest.raises(ValueError, match="cannot be combined"):
        merge(JobOptions(), {"at": NOON, "delay": 5})


def test_options_of_a_queue_without_defaults_are_used_as_they_are() -> None:
    reused = JobOptions(priority=3, key="k")
    assert merge(JobOptions(), reused) is reused
    assert merge(JobOptions(), {"priority": 3, "key": "k"}) == reused


def test_without_options_the_defaults_are_used_as_they_are() -> None:
    for default in (JobOptions(), JobOptions(attempts=2)):
        assert merge(default, {}) is default
        assert merge(default, JobOptions()) is default


def test_options_compare_by_value() -> None:
    headers = {"a": "b"}
    options = JobOptions(attempts=2, headers=headers, keep_failed=KeepJobs(count=3))
    headers["a"] = "changed"
    assert options.headers == {"a": "b"}
    with pytest.raises(AttributeError):
        options.attempts = 5  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        cast("dict[str, str]", options.headers)["a"] = "c"
    for twin in (pickle.loads(pickle.dumps(options)), copy.deepcopy(options), copy.copy(options)):
        assert twin == options
        assert explicit(twin) == explicit(options)
        assert hash(twin) == hash(options)


whole_seconds = st.integers(1, 10**9).map(lambda milliseconds: milliseconds / 1000)
keeps = (
    st.booleans()
    | st.integers(0, 10**6)
    | st.builds(KeepJobs, st.none() | whole_seconds, st.none() | st.integers(0, 9))
)
worker_options: st.SearchStrategy[dict[str, object]] = st.fixed_dictionaries(
    {},
    optional={
        "attempts": st.integers(1, 1000),
        "backoff": st.builds(Backoff.exponential, whole_seconds, st.none() | whole_seconds, st.floats(0, 1))
        | whole_seconds,
        "timeout": whole_seconds,
        "lock_duration": st.floats(1, 86_400),
        "keep_completed": keeps,
        "keep_failed": keeps,
        "result_ttl": whole_seconds,
        "headers": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
        "delay": whole_seconds,
        "ttl": whole_seconds,
        "durability": st.sampled_from(["default", "replicated", "fsync"]),
        "deduplication": st.builds(Deduplication, st.just("d"), whole_seconds, st.sampled_from(["simple", "debounce"])),
    },
)


@given(worker_options)
def test_options_for_workers_are_read_back(chosen: dict[str, object]) -> None:
    options = build(**chosen)
    assert read_options(stored_form(options)) == options


@pytest.mark.smoke
def test_only_values_other_than_the_default_are_stored() -> None:
    assert stored_form(JobOptions()) == b""
    assert read_options(b"") == JobOptions()
    assert stored_form(JobOptions(attempts=1, headers={}, timeout=None)) == b""
    # The record has other fields for these.
    assert stored_form(JobOptions(job_id="a", key="k", cost=2, priority=3)) == b""
    assert stored_form(JobOptions(lifo=True)) == b""
    stored = stored_form(
        JobOptions(
            attempts=3,
            backoff=1,
            timeout=2,
            lock_duration=30,
            keep_completed=True,
            keep_failed=9,
            result_ttl=0.5,
            delay=5,
            ttl=30,
            durability="fsync",
            deduplication=Deduplication("d", 3, "throttle"),
        )
    )
    assert msgpack.unpackb(stored) == {
        "a": 3,
        "b": {"k": "f", "d": 1000},
        "t": 2000,
        "l": 30_000,
        "c": [-1, -1],
        "f": [9, -1],
        "r": 500,
        "w": 5000,
        "x": 30_000,
        "u": "fsync",
        "d": {"id": "d", "ttl": 3000, "mode": "throttle"},
    }
    assert msgpack.unpackb(stored_form(JobOptions(at=NOON))) == {"i": 1_893_499_200_000}


def test_unknown_stored_options_are_ignored() -> None:
    assert read_options(msgpack.packb({"a": 2, "new": [1]})) == JobOptions(attempts=2)


@pytest.mark.parametrize("stored", [b"\xc1", b"\x93", *map(msgpack.packb, MALFORMED)])
def test_malformed_stored_options_are_reported(stored: bytes) -> None:
    with pytest.raises(SerializationError, match=r"stored job options .* are invalid"):
        read_options(stored)


@given(st.binary(max_size=40))
def test_arbitrary_bytes_raise_only_that_error(stored: bytes) -> None:
    try:
        found = read_options(stored)
    except SerializationError:
        return
    assert isinstance(found, JobOptions)


def test_the_order_of_a_job_is_packed() -> None:
    assert (build().priority, build().lifo, build().key, build().cost, build().deduplication) == (
        0,
        False,
        None,
        1,
        None,
    )
    assert to_extra(build()) == {}
    assert to_extra(build(priority=3)) == {"priority": 3}
    assert to_extra(build(lifo=True)) == {"lifo": True}
    assert to_extra(build(key="k", priority=2)) == {"key": "k", "cost": 1_000, "priority": 2}
    assert to_extra(build(key="k", cost=0.5)) == {"key": "k", "cost": 500}
    assert to_extra(build(cost=7)) == {}


@pytest.mark.parametrize(
    "options",
    [
        build(),
        build(key="k"),
        build(key="käse 7"),
        build(key="k", cost=2),
        build(key="k", priority=1),
        build(lifo=True),
    ],
)
def test_the_order_of_a_job_is_read_back(options: JobOptions) -> None:
    assert unpack_extra(pack_extra(options)) == to_extra(options)


def test_the_earlier_end_of_the_time_to_start_is_sent() -> None:
    assert unpack_extra(pack_extra(JobOptions(), ReplyTo("c", 500))) == {"reply": "c", "ttl": 500}
    assert unpack_extra(pack_extra(JobOptions(ttl=0.4), ReplyTo("c", 500)))["ttl"] == 400
    assert unpack_extra(pack_extra(JobOptions(ttl=0.6), ReplyTo("c", 500)))["ttl"] == 500
    assert unpack_extra(pack_extra(JobOptions(ttl=0.6), ReplyTo("c")))["ttl"] == 600


def test_a_key_alone_is_sent_as_text() -> None:
    assert pack_extra(build(key="k")) == b"kk"
    assert pack_extra(build(key="k"), ReplyTo("channel"))[:1] != b"k"


def test_options_for_workers_do_not_change_the_order() -> None:
    assert stored_form(build(priority=3, key="k", lifo=False)) == b""


@pytest.mark.parametrize("other", [{"priority": 1}, {"key": "k"}])
def test_lifo_excludes_other_orders_from_every_source(other: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="lifo"):
        build(lifo=True, **other)
    with pytest.raises(ValueError, match="lifo"):
        merge(build(lifo=True), other)
    assert merge(build(lifo=True), {"lifo": False, **other}).lifo is False


def test_debounce_delays_by_its_ttl_by_default() -> None:
    burst = Deduplication("d", ttl=5, mode="debounce")
    wire = {"id": "d", "mode": "debounce", "ttl": 5_000}
    assert to_extra(build(deduplication=burst)) == {"dedup": wire, "delay": 5_000}
    assert to_extra(build(deduplication=burst, delay=2)) == {"dedup": wire, "delay": 2_000}
    assert to_extra(build(deduplication=burst, delay=0)) == {"dedup": wire, "delay": 0}
    assert to_extra(build(deduplication=burst, at=NOON)) == {"dedup": wire, "at": round(NOON.timestamp() * 1000)}
    assert to_extra(build(deduplication=Deduplication("d", ttl=5))) == {"dedup": {**wire, "mode": "simple"}}
    with pytest.raises(ValueError, match="'debounce' needs ttl=, delay= or at="):
        build(deduplication=Deduplication("d", mode="debounce"))
    assert build(deduplication=Deduplication("d", mode="debounce"), delay=1).delay == 1
