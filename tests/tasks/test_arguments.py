"""Arguments by signature and annotation: refusals before anything is sent, and values that return with their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar, cast
from uuid import UUID

import msgpack
import pydantic
import pytest

from glidemq_async import JsonSerializer, SerializationError
from glidemq_async.tasks.arguments import Arguments

UserId = NewType("UserId", UUID)
ID = UUID("12345678-1234-5678-1234-567812345678")
NOON = datetime(2026, 3, 29, 12, 30, 1, 5, tzinfo=UTC)


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Corner(Enum):
    ORIGIN = (0, 0)


class Level(IntEnum):
    LOW = 1


class Address(TypedDict):
    street: str


@dataclass
class Item:
    name: str
    price: Decimal
    parts: list[Item] = field(default_factory=list)


@dataclass
class SpecialItem(Item):
    pass


@dataclass
class Derived:
    base: int
    double: int = field(init=False)

    def __post_init__(self) -> None:
        self.double = self.base * 2


@dataclass
class Salted:
    text: str
    salt: InitVar[str]


@dataclass
class Vague:
    when: Nowhere  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


T = TypeVar("T")
K = TypeVar("K")


@dataclass
class Page(Generic[T]):
    items: list[T]
    more: Page[T] | None = None


@dataclass
class Index(Generic[K, T]):
    entries: dict[K, Page[T]]


@dataclass
class Dates(Page[date]):
    title: str = ""


class Visit(NamedTuple):
    page: str
    at: datetime
    item: Item | None = None


class Pair(NamedTuple, Generic[T]):
    one: T
    other: T


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    number: int = pydantic.Field(alias="orderNumber")
    placed: datetime
    total: Decimal
    items: list[Item] = []


class Scan(pydantic.BaseModel):
    content: bytes


def arguments(function: Callable[..., Any], injected: frozenset[str] = frozenset()) -> Arguments:
    return Arguments("t", function, injected)


def around(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """Store a call as plain values, and read it again."""
    checked = arguments(function)
    packed = msgpack.packb(checked.stored(args, kwargs), strict_types=True)
    return checked.read(msgpack.unpackb(packed, strict_map_key=False))


def free(a: Any, b: int = 1, *, c: Any, d: int = 2) -> None: ...


def many(a: int, *rest: int, **others: Decimal) -> None: ...


def only(a: int, /, b: int = 0) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {"c": 1}), ((1, 2), {"c": 1, "d": 3}), ((), {"a": 1, "c": 2}), ((), {"a": 1, "b": 2, "c": 3, "d": 4})],
)
def test_a_call_that_fits_is_stored_unchanged(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert arguments(free).stored(args, kwargs) == {"a": list(args), "k": kwargs}


@pytest.mark.parametrize(
    ("args", "kwargs", "named"),
    [
        ((), {"c": 1}, "'a'"),
        ((1,), {}, "'c'"),
        ((1, 2), {"d": 1}, "'c'"),
        ((1,), {"a": 2, "c": 1}, "'a'"),
        ((1,), {"c": 1, "e": 1}, "'e'"),
        ((1, 2, 3), {"c": 1}, "too many positional"),
    ],
)
def test_a_call_that_does_not_fit_names_the_argument(args: tuple[Any, ...], kwargs: dict[str, Any], named: str) -> None:
    with pytest.raises(TypeError, match=named) as caught:
        arguments(free).stored(args, kwargs)
    assert "'t'" in str(caught.value)


def test_variable_and_positional_only_arguments_are_checked() -> None:
    assert around(many, 1, 2, 3, x=Decimal("1.10")) == ([1, 2, 3], {"x": Decimal("1.10")})
    assert around(only, 1, b=2) == ([1], {"b": 2})
    with pytest.raises(TypeError, match="'a'"):
        arguments(only).stored((), {"a": 1})
    with pytest.raises(TypeError, match="argument 'x' must be Decimal"):
        arguments(many).stored((1,), {"x": "1"})
    with pytest.raises(TypeError, match="argument 'rest' must be int"):
        arguments(many).stored((1, "2"), {})


def test_a_job_option_among_the_arguments_is_named() -> None:
    def send(to: str) -> None: ...

    with pytest.raises(TypeError, match=r"argument 'delay'; it is a job option: call options\(delay=\.\.\.\) first"):
        arguments(send).stored(("ada",), {"delay": 5})
    with pytest.raises(TypeError, match=r"argument 'dleay'$"):
        arguments(send).stored(("ada",), {"dleay": 5})
    with pytest.raises(TypeError, match=r"argument 'wait_timeout'; it is an option of add_and_wait"):
        arguments(send).stored(("ada",), {"wait_timeout": 5})
    with pytest.raises(TypeError, match=r"multiple values for argument 'to'$"):
        arguments(send).stored(("ada",), {"to": "eve"})


def test_a_mistyped_argument_is_named_with_the_signature_and_the_nearest_parameter() -> None:
    def send(to: str, subject: str = "hi") -> None: ...

    with pytest.raises(
        TypeError, match=r"\(to: str, subject: str = 'hi'\).*argument 'subjct'; did you mean 'subject'\?"
    ):
        arguments(send).stored(("ada",), {"subjct": "a"})
    with pytest.raises(TypeError, match=r"argument 'too'; did you mean 'to'\?$"):  # and not that 'to' is missing
        arguments(send).stored((), {"too": "ada"})
    with pytest.raises(TypeError, match=r"argument 'copies'$"):
        arguments(send).stored(("ada",), {"copies": 2})


def test_a_provided_parameter_is_not_an_argument() -> None:
    def function(a: int, db: object = None) -> None: ...

    checked = arguments(function, frozenset({"db"}))
    assert list(checked.signature.parameters) == ["a"]
    with pytest.raises(TypeError, match="'db' is a dependency"):
        checked.stored((1,), {"db": 1})


VALUES: list[tuple[Any, Any]] = [
    (int, 1),
    (float, 1),
    (str, "x"),
    (bytes, b"\x00"),
    (bool, True),
    (int | None, None),
    (int | str, "x"),
    (Literal["a", 1], "a"),
    (datetime, NOON),
    (datetime, NOON.replace(tzinfo=None)),
    (date, NOON.date()),
    (time, time(1, 2, 3)),
    (timedelta, timedelta(days=-1, microseconds=3)),
    (Decimal, Decimal("0.10")),
    (UUID, ID),
    (UserId, ID),
    (Size, Size.LARGE),
    (Corner, Corner.ORIGIN),
    (PurePosixPath, PurePosixPath("/a/b")),
    (Address, {"street": "x"}),
    (list[datetime], [NOON]),
    (Sequence[UUID], [ID]),
    (set[UUID], {ID}),
    (frozenset[int], frozenset({1})),
    (tuple[int, ...], (1, 2)),
    (tuple[int, Decimal], (1, Decimal(2))),
    (dict[UUID, Item], {ID: Item("a", Decimal(1))}),
    (Mapping[str, Decimal], {"a": Decimal(1)}),
    (Item | None, Item("a", Decimal(1), [Item("b", Decimal(2))])),
    (list[Item], [Item("a", Decimal(1))]),
    (Derived, Derived(2)),
    (Visit, Visit("/", NOON)),
    (list[Visit], [Visit("/", NOON, Item("a", Decimal(1)))]),
    (Pair[int], Pair(1, 2)),
    (Pair[date], Pair(NOON.date(), NOON.date())),
    (Page[int], Page([1])),
    (Page[Item], Page([Item("a", Decimal(1))], Page([]))),
    (Index[UUID, Item], Index({ID: Page([Item("a", Decimal(1))])})),
    (Dates, Dates([NOON.date()], Page([NOON.date()]))),
    (Order, Order(orderNumber=1, placed=NOON, total=Decimal("1.10"), items=[Item("a", Decimal("0.1"))])),
]


@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=str)
def test_annotated_values_return_with_their_types(annotation: Any, value: Any) -> None:
    def function(x: Any) -> Any: ...

    function.__annotations__ = {"x": annotation, "return": annotation}
    [back], _ = around(function, value)
    assert back == value
    assert type(back) is type(value)
    checked = arguments(function)
    stored = msgpack.unpackb(msgpack.packb(checked.stored_result(value)), strict_map_key=False)
    assert checked.read_result(stored) == value


KEYED: list[tuple[Any, Any]] = [
    (dict[int, str], {1: "a"}),
    (dict[float, int], {1.5: 2}),
    (dict[bool, int], {True: 1, False: 0}),
    (dict[Level, Item], {Level.LOW: Item("a", Decimal(1))}),
    (Mapping[timedelta, int], {timedelta(1): 1}),
    (dict[str, dict[int, date]], {"a": {1: NOON.date()}}),
]


@pytest.mark.parametrize(("annotation", "value"), KEYED, ids=str)
def test_keys_return_with_their_types_even_from_json(annotation: Any, value: Any) -> None:
    def function(x: Any) -> None: ...

    function.__annotations__ = {"x": annotation}
    checked = arguments(function)
    json = JsonSerializer()
    assert checked.read(json.loads(json.dumps(checked.stored((value,), {})))) == ([value], {})
    assert around(function, value) == ([value], {})
    assert type(next(iter(checked.read(checked.stored((value,), {}))[0][0]))) is type(next(iter(value)))


WRONG: list[tuple[Any, Any, str]] = [
    (int, "1", "must be int, got '1'"),
    (str, 1, "must be str"),
    (bool, 1, "must be bool"),
    (float, "1", "must be float"),
    (list, {}, "must be list"),
    (dict, [], "must be dict"),
    (int | str, 1.5, "must be int or str"),
    (Literal["a", "b"], "c", "must be one of 'a', 'b'"),
    (datetime, "2026-01-01", "must be datetime"),
    (date, NOON, "must be date"),
    (Size, "l", "must be Size"),
    (Item, {"name": "a"}, "must be Item"),
    (Item, SpecialItem("a", Decimal(1)), "would come back as Item"),
    (Item, Item("a", 1.5), r"\.price must be Decimal"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    (list[Item], [Item("a", Decimal(1)), 3], r"\[1\] must be Item"),
    (Order, {"number": 1}, "must be Order"),
    (Visit, ("/", NOON), "must be Visit"),
    (Visit, Visit("/", "noon"), r"\.at must be datetime"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    (Page[Decimal], Page([1]), r"\.items \[0\] must be Decimal"),
    (Vague, Vague(NOON), "is a Vague, .* annotations cannot be resolved: name 'Nowhere' is not defined"),
    (Salted, Salted("a", "b"), "cannot be rebuilt .*: its __init__ also takes 'salt'"),
    (tuple[int, Decimal], (1,), "must be a tuple of 2"),
    (Scan, Scan(content=b"\xff"), "has no JSON form: .*utf-8"),
    (list[Scan], [Scan(content=b"\xff")], r"\[0\] has no JSON form"),
]


@pytest.mark.parametrize(("annotation", "value", "message"), WRONG, ids=str)
def test_annotated_values_are_checked_before_they_are_sent(annotation: Any, value: Any, message: str) -> None:
    def function(x: Any) -> None: ...

    function.__annotations__ = {"x": annotation}
    with pytest.raises(TypeError, match=f"argument 'x' .*{message}"):
        arguments(function).stored((value,), {})


def test_none_as_a_default_value_is_accepted() -> None:
    def function(x: datetime = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013  # pyright: ignore[reportArgumentType]

    assert around(function, None) == ([None], {})


def test_unions_and_unknown_annotations_are_left_to_the_serializer() -> None:
    def function(x: datetime | Decimal, y: Nowhere, z: Any, i: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]

    checked = arguments(cast("Callable[..., Any]", function))
    assert checked.stored((NOON, 1, 2, 3), {})["a"] == [NOON, 1, 2, 3]
    with pytest.raises(TypeError, match="argument 'i'"):
        checked.stored((NOON, 1, 2, "3"), {})


def test_a_field_stored_by_a_newer_program_is_ignored() -> None:
    def function(x: Item) -> None: ...

    [item], _ = arguments(function).read({"a": [{"name": "a", "price": "1", "colour": "red"}]})
    assert item == Item("a", Decimal(1))


@pytest.mark.parametrize("data", ["text", 3, [], {"to": "x"}, {"a": "xy", "k": {}}, {"a": [], "k": []}, {"a": 1}])
def test_data_that_is_not_a_call_is_reported(data: Any) -> None:
    with pytest.raises(SerializationError, match="must be a call"):
        arguments(free).read(data)


@pytest.mark.parametrize("stored", ["soon", {"name": "a"}, 3])
def test_an_unreadable_argument_is_reported(stored: Any) -> None:
    def function(x: Item) -> None: ...

    with pytest.raises(SerializationError, match="argument 'x' of task 't'"):
        arguments(function).read({"a": [stored], "k": {}})
