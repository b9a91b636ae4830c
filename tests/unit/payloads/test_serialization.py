"""The round trip of payloads, and the errors for values that cannot be sent."""

import json
import math
import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glidemq_async.client.payload_coder import Payloads
from glidemq_async.errors import PayloadTooLarge, SerializationError
from glidemq_async.payloads.serialization import JsonSerializer, MsgpackSerializer, Serializer

MSGPACK = MsgpackSerializer()
JSON = JsonSerializer()
DAY: Final = 24 * 3600 - 1
BOTH = pytest.mark.parametrize("serializer", [MSGPACK, JSON], ids=["msgpack", "json"])

text = st.text(st.characters(exclude_categories=["Cs"]))
json_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | text | st.binary()
keys = text | st.integers(-(2**63), 2**64 - 1) | st.binary()


def nested(leaves: st.SearchStrategy[object], keys: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=20)


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@dataclass
class Point:
    x: int


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Span(Enum):
    DAY = timedelta(days=1)
    BOTH = (1, 2)
    HUGE = 2**70


class Word(str, Enum):  # noqa: UP042 (StrEnum is the tame one)
    HELLO = "hello"


class Model:
    def model_dump(self, mode: str) -> object:
        return mode


class Pair(NamedTuple):
    a: int
    b: int


@pytest.mark.smoke
@given(nested(scalars, keys))
def test_native_values_return_unchanged_through_msgpack(value: object) -> None:
    assert MSGPACK.loads(MSGPACK.dumps(value)) == value


@given(nested(json_scalars, text))
def test_json_values_return_unchanged_through_json(value: object) -> None:
    assert JSON.loads(JSON.dumps(value)) == value


def test_json_is_compact_and_readable() -> None:
    assert JSON.dumps({"a": [1, "é"]}) == '{"a":[1,"é"]}'.encode()


@BOTH
def test_tuples_return_as_lists(serializer: Serializer) -> None:
    assert serializer.loads(serializer.dumps((1, (2,), {"a": Pair(3, 4)}))) == [1, [2], {"a": [3, 4]}]


def test_subclasses_return_as_their_base() -> None:
    class Text(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "not me"

    ordered: dict[str, int] = OrderedDict(a=1)
    value: dict[str, object] = {
        "level": Level.LOW,
        "word": Word.HELLO,
        "map": ordered,
        "text": Text("me"),
        Word.HELLO: True,
    }
    found = MSGPACK.loads(MSGPACK.dumps(value))
    assert found == {"level": 1, "word": "hello", "map": {"a": 1}, "text": "me", "hello": True}
    assert MSGPACK.loads(MSGPACK.dumps([bytearray(b"a"), memoryview(b"b")])) == [b"a", b"b"]


def test_floats_without_a_json_form_pass_through_msgpack() -> None:
    assert repr(MSGPACK.loads(MSGPACK.dumps([math.nan, math.inf, -math.inf]))) == "[nan, inf, -inf]"


extended = (
    st.datetimes(
        timezones=st.none()
        | st.just(UTC)
        | st.integers(-DAY, DAY).map(lambda seconds: timezone(timedelta(seconds=seconds)))
    )
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
)


@given(nested(scalars | extended, keys | extended))
def test_dates_decimals_and_uuids_return_through_msgpack(value: object) -> None:
    found = MSGPACK.loads(MSGPACK.dumps(value))
    assert found == value
    assert repr(found) == repr(value)  # 1.50 is equal to 1.5, and a time of one zone to a time of another one


def test_a_zone_returns_as_its_offset() -> None:
    summer = datetime(2030, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    found = MSGPACK.loads(MSGPACK.dumps(summer))
    assert found == summer
    assert repr(found) == repr(summer.astimezone(timezone(timedelta(hours=2))))


def test_subclasses_of_dates_return_as_their_base() -> None:
    class Moment(datetime):
        def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
            return "not me"

    found = MSGPACK.loads(MSGPACK.dumps(Moment(2030, 1, 1, tzinfo=UTC)))
    assert (type(found), found) == (datetime, datetime(2030, 1, 1, tzinfo=UTC))


def test_an_enum_returns_as_its_value_through_msgpack() -> None:
    value = {Colour.RED: [Colour.RED, Word.HELLO, Level.LOW, Span.DAY, Span.BOTH]}
    assert MSGPACK.loads(MSGPACK.dumps(value)) == {"red": ["red", "hello", 1, timedelta(days=1), [1, 2]]}
    with pytest.raises(SerializationError, match="more than 64") as caught:
        MSGPACK.dumps([1, Span.HUGE])
    assert caught.value.path == "$[1]"
    with pytest.raises(SerializationError, match="the key") as caught:
        MSGPACK.dumps({"a": {Span.BOTH: 1}})
    assert caught.value.path == "$.a"


@pytest.mark.parametrize(
    "data",
    [
        b"\xd4\x2ax",
        b"\xd4\x01x",
        b"\xd4\x02\xff",
        b"\xd4\x04x",
        b"\xc7\x0e\x04999999999999 0 0"[:-1],
        b"\xd4\x05x",
        b"\xd4\x06x",
    ],
)
def test_invalid_extensions_are_reported(data: bytes) -> None:
    with pytest.raises(SerializationError, match="not valid msgpack"):
        MSGPACK.loads(data)


@pytest.mark.parametrize(
    ("value", "name", "hint"),
    [
        (datetime(2030, 1, 1, tzinfo=UTC), "datetime.datetime", "value.isoformat()"),
        (date(2030, 1, 1), "datetime.date", "value.isoformat()"),
        (timedelta(1), "datetime.timedelta", "value.total_seconds()"),
        (Decimal("1.5"), "decimal.Decimal", "str(value)"),
        (uuid.UUID(int=1), "uuid.UUID", "str(value)"),
        (Colour.RED, "Colour", "value.value"),
    ],
)
def test_json_refuses_values_that_would_change(value: object, name: str, hint: str) -> None:
    with pytest.raises(SerializationError, match=name) as caught:
        JSON.dumps({"at": [value]})
    assert caught.value.path == "$.at[0]"
    assert hint in str(caught.value)


@BOTH
@pytest.mark.parametrize(
    ("value", "name", "hint"),
    [
        (PurePosixPath("/a"), "pathlib.PurePosixPath", "str(value)"),
        ({1}, "set", "send a list"),
        (frozenset("a"), "frozenset", "send a list"),
        (Point(1), "Point", "dataclasses.asdict(value)"),
        (Model(), "Model", "model_dump"),
        (1j, "complex", "plain values"),
        (object, "type", "plain values"),
    ],
)
def test_other_types_are_refused_with_location_type_and_remedy(
    serializer: Serializer, value: object, name: str, hint: str
) -> None:
    payload = {"first": 1, "items": [0, 1, (2, 3), {"when": value}], "last": value}
    with pytest.raises(SerializationError) as caught:
        serializer.dumps(payload)
    assert caught.value.path == "$.items[3].when"
    message = str(caught.value)
    assert "$.items[3].when" in message
    assert name in message
    assert hint in message


MISPLACED: list[tuple[object, str]] = [
    ({1}, "$"),
    ({"a b": {1}}, "$['a b']"),
    ({7: {1}}, "$[7]"),
    ([[[{1}]]], "$[0][0][0]"),
    ({"a": {("x", "y"): 1}}, "$.a"),
    ([{"ok": {frozenset({1}): 1}}], "$[0].ok"),
    ({"a": "\ud800"}, "$.a"),
    ({"a": {"\ud800": 1}}, "$.a"),
]


@BOTH
@pytest.mark.parametrize(("payload", "path"), MISPLACED)
def test_the_path_locates_the_value(serializer: Serializer, payload: object, path: str) -> None:
    with pytest.raises(SerializationError) as caught:
        serializer.dumps(payload)
    assert caught.value.path == path


def test_a_tuple_as_a_key_is_refused_although_msgpack_accepts_it() -> None:
    with pytest.raises(SerializationError, match=r"\$\[0\] cannot .* the key \(\), a tuple; use one of"):
        MSGPACK.dumps([{(): 1}])
    assert MSGPACK.loads(MSGPACK.dumps({"a": ({"b": 1},)})) == {"a": [{"b": 1}]}


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**40])
def test_ints_beyond_64_bits_are_refused_by_msgpack(value: int) -> None:
    with pytest.raises(SerializationError, match=r"\$\.n\[1\] .* more than 64; send str\(value\)") as caught:
        MSGPACK.dumps({"n": [1, value]})
    assert caught.value.path == "$.n[1]"
    assert JSON.loads(JSON.dumps(value)) == value


def test_json_refuses_values_without_a_json_form() -> None:
    with pytest.raises(SerializationError, match="base64") as caught:
        JSON.dumps({"raw": b"1"})
    assert caught.value.path == "$.raw"
    with pytest.raises(SerializationError, match="the float nan") as caught:
        JSON.dumps([1.0, math.nan])
    assert caught.value.path == "$[1]"


@BOTH
def test_a_recursive_or_endless_value_is_refused(serializer: Serializer) -> None:
    endless: list[object] = []
    endless.append(endless)
    for value in (endless, deep(100_000)):
        with pytest.raises(SerializationError, match="nested too deeply, or contains itself"):
            serializer.dumps(value)


@BOTH
def test_the_serializer_continues_after_a_failure(serializer: Serializer) -> None:
    with pytest.raises(SerializationError):
        serializer.dumps([1, 2, {3}])
    assert serializer.loads(serializer.dumps({"a": 1})) == {"a": 1}


def test_a_huge_value_does_not_affect_the_next_one() -> None:
    huge = b"a" * 3_000_000
    assert MSGPACK.loads(MSGPACK.dumps(huge)) == huge
    assert MSGPACK.loads(MSGPACK.dumps([1])) == [1]


def test_threads_do_not_disturb_each_other() -> None:
    wrong: list[object] = []
    together = threading.Barrier(4)

    def work(number: int) -> None:
        together.wait()
        for turn in range(2000):
            value = {"number": [number, turn], "tuple": [number] * 20}
            if MSGPACK.loads(MSGPACK.dumps({**value, "tuple": (number,) * 20})) != value:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x01\x02",
        b"\xa1\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x81\x90\x01",
        b"\xc7\x00\xff",
        b"\x91" * 5000,
    ],
)
def test_malformed_msgpack_is_reported(data: bytes) -> None:
    with pytest.raises(SerializationError, match=f"^{len(data)} bytes are not valid msgpack: .+"):
        MSGPACK.loads(data)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[1] 2", b"[" * 100_000])
def test_malformed_json_is_reported(data: bytes) -> None:
    with pytest.raises(SerializationError, match=f"^{len(data)} bytes are not valid JSON: .+"):
        JSON.loads(data)


@BOTH
@given(data=st.binary())
def test_no_bytes_raise_another_error(serializer: Serializer, data: bytes) -> None:
    # Valid bytes load and invalid bytes raise this error. Any other outcome fails the test.
    refusal: str | None = None
    try:
        serializer.loads(data)
    except SerializationError as error:
        refusal = str(error)
    assert refusal is None or refusal.startswith(f"{len(data)} bytes are not valid ")


def test_the_limit_applies_to_encoded_bytes() -> None:
    payloads = Payloads("glide:{q}", MSGPACK, (), 10)
    assert payloads.encode("a" * 9, "data", "n", "") == b"\xa9" + b"a" * 9
    with pytest.raises(PayloadTooLarge, match="data is 11 bytes when encoded, but the limit is 10") as caught:
        payloads.encode("a" * 10, "data", "n", "")
    assert (caught.value.size, caught.value.limit) == (11, 10)
    assert "or raise payload_limit" in str(caught.value)


def test_the_type_of_a_refused_value_has_the_right_article() -> None:
    with pytest.raises(SerializationError, match="found an object; send plain values"):
        MSGPACK.dumps(object())
    with pytest.raises(SerializationError, match="found a range; send"):
        MSGPACK.dumps(range(3))


def test_errors_of_a_custom_serializer_name_it() -> None:
    class Own:
        def dumps(self, obj: object, /) -> bytes:
            return json.dumps(obj).encode()

        def loads(self, data: bytes, /) -> object:
            raise RuntimeError("out of order")

    own: Serializer = Own()
    assert isinstance(own, Serializer)
    payloads = Payloads("glide:{q}", own, ())
    assert payloads.encode([1], "result", "n", "7") == b"[1]"
    with pytest.raises(SerializationError, match="result of job 7 cannot be decoded: out of order"):
        payloads.decode(b"[1]", "result", "n", "7")
