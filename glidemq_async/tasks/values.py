"""Conversion of arguments and results by their annotations, to their stored form and back.

A converter is created once per annotation. Annotations that do not affect the stored form have none; the serializer
handles these values.
"""

from __future__ import annotations

import types
from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Union,
    cast,
    get_args,
    get_origin,
    is_typeddict,
)
from uuid import UUID

from glidemq_async.tasks.models import (
    Convert,
    Converter,
    fields_converter,
    is_named_tuple,
    is_pydantic_model,
    pydantic_converter,
    shortened,
)

__all__ = ["Converter", "converter_of"]


def converter_of(annotation: object) -> Converter | None:
    """Return the converter of an annotation, None if its values are stored unchanged."""
    annotation = _bare(annotation)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _union(args)
    if origin is Literal:
        return _literal(args)
    if isinstance(origin, type):
        return _container(origin, args)
    return _class(annotation, ()) if isinstance(annotation, type) else None


def _bare(annotation: Any) -> Any:
    """Resolve Annotated, NewType and type aliases."""
    while not isinstance(annotation, type):
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
            continue
        below = getattr(annotation, "__supertype__", None) or getattr(annotation, "__value__", None)
        if below is None:
            break
        annotation = below
    return annotation


def _expected(wanted: str, value: object) -> TypeError:
    return TypeError(f"must be {wanted}, got {shortened(value)}")


def _check(wanted: str, *accepted: type) -> Converter:
    def encode(value: Any) -> Any:
        if isinstance(value, accepted):
            return value
        raise _expected(wanted, value)

    return Converter(encode, None, accepted[0])


# The types that serializers accept unchanged, with the types that type checkers accept in their place.
_PLAIN: Final[Mapping[type, tuple[type, ...]]] = {
    str: (str,),
    bool: (bool,),
    int: (int,),
    float: (float, int),
    bytes: (bytes, bytearray, memoryview),
    list: (list,),
    dict: (dict,),
}


def _text(kind: type, write: Convert, read: Convert) -> Converter:
    def encode(value: Any) -> Any:
        # A datetime is also a date, but it would not be restored as a datetime.
        if isinstance(value, kind) and not (kind is date and isinstance(value, datetime)):
            return write(value)
        raise _expected(kind.__name__, value)

    def decode(stored: Any) -> Any:
        # A custom serializer may have kept the type.
        return stored if isinstance(stored, kind) else read(stored)

    return Converter(encode, decode)


def _microseconds(value: timedelta) -> int:
    return value // timedelta(microseconds=1)


_TEXTS: Final[Mapping[type, Converter]] = {
    datetime: _text(datetime, datetime.isoformat, datetime.fromisoformat),
    date: _text(date, date.isoformat, date.fromisoformat),
    time: _text(time, time.isoformat, time.fromisoformat),
    timedelta: _text(timedelta, _microseconds, lambda number: timedelta(microseconds=int(number))),
    Decimal: _text(Decimal, str, Decimal),
    UUID: _text(UUID, str, UUID),
}


def _class(kind: Any, args: tuple[Any, ...]) -> Converter | None:
    if kind in _PLAIN:
        return _check(kind.__name__, *_PLAIN[kind])
    if kind in _TEXTS:
        return _TEXTS[kind]
    if issubclass(kind, Enum):
        return _enum(kind)
    if issubclass(kind, PurePath):
        return _text(kind, str, kind)
    if kind in (set, frozenset, tuple):
        return _container(kind, ())
    if is_typeddict(kind):
        return _check(kind.__name__, dict)
    if is_pydantic_model(kind):
        return pydantic_converter(kind)
    if is_dataclass(kind) or is_named_tuple(kind):
        return fields_converter(cast("type", kind), args, converter_of)
    return None


def _enum(kind: type[Enum]) -> Converter:
    # Values survive a renamed member, but only values that every serializer keeps can be stored. Otherwise the name is.
    by_value = all(isinstance(member.value, str | int) for member in kind)

    def encode(value: Any) -> Any:
        if not isinstance(value, kind):
            raise _expected(kind.__name__, value)
        return value.value if by_value else value.name

    def decode(stored: Any) -> Any:
        return kind(stored) if by_value else kind[stored]

    return Converter(encode, decode)


def _literal(values: tuple[Any, ...]) -> Converter | None:
    if any(isinstance(value, Enum) for value in values):
        return None
    wanted = f"one of {', '.join(map(repr, values))}"

    def encode(value: Any) -> Any:
        if value in values:
            return value
        raise _expected(wanted, value)

    return Converter(encode, None)


def _union(members: tuple[Any, ...]) -> Converter | None:
    """Return the converter of an optional value or a union of plain types. Other unions are ambiguous when stored."""
    others: list[Any] = [_bare(member) for member in members if member is not types.NoneType]
    if len(others) == 1:
        return _optional(converter_of(others[0]))
    # A stored text could be any member of `str | datetime`. Guessing would return a wrong type for some values, so such
    # a union is left to the serializer.
    if not all(isinstance(member, type) and member in _PLAIN for member in others):
        return None
    accepted = [kind for member in others for kind in _PLAIN[member]]
    accepted += [types.NoneType] if len(others) < len(members) else []
    return _check(" or ".join(member.__name__ for member in others), *accepted)


def _optional(inner: Converter | None) -> Converter | None:
    if inner is None:
        return None
    return Converter(_unless_none(inner.encode), _unless_none(inner.decode) if inner.decode else None)


def _unless_none(convert: Convert) -> Convert:
    def converted(value: Any) -> Any:
        return None if value is None else convert(value)

    return converted


def _container(origin: type, args: tuple[Any, ...]) -> Converter | None:
    if origin is tuple:
        return _tuple(args)
    if origin in (set, frozenset, abc.Set):
        return _items(abc.Set, _inner(args, 0), frozenset if origin is frozenset else set)
    if origin in (list, abc.Sequence):
        inner = _inner(args, 0)
        if inner is None:
            return _check("list", list) if origin is list else None
        return _items(list if origin is list else abc.Sequence, inner, list)
    if origin in (dict, abc.Mapping):
        return _mapping(origin, _key(args[0]) if args else None, _inner(args, 1))
    return _class(origin, args)


def _inner(args: tuple[Any, ...], position: int) -> Converter | None:
    """Return the converter for the items of a container, if they need one. Plain items are not checked one by one."""
    # Checking them would cost each add time in proportion to the length of the list, only to find what a type checker
    # finds as well.
    found = converter_of(args[position]) if len(args) > position else None
    return found if found is not None and found.decode is not None else None


def _each(encode: Convert, values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        try:
            found.append(encode(value))
        except TypeError as error:
            raise TypeError(f"[{len(found)}] {error}") from None
    return found


def _items(accepted: type, inner: Converter | None, made: Convert) -> Converter:
    def encode(value: Any) -> Any:
        if not isinstance(value, accepted) or isinstance(value, str | bytes):
            raise _expected(accepted.__name__.lower(), value)
        values = cast("Iterable[Any]", value)
        return list(values) if inner is None else _each(inner.encode, values)

    read = inner.decode if inner is not None else None

    def decode(stored: Any) -> Any:
        return made(stored) if read is None else made(map(read, stored))

    return Converter(encode, decode)


def _tuple(args: tuple[Any, ...]) -> Converter:
    if not args or args[-1] is Ellipsis:
        return _items(tuple, _inner(args, 0), tuple)
    members = [_inner(args, position) for position in range(len(args))]

    def encode(value: Any) -> Any:
        if not _is_tuple_of(len(members), value):
            raise _expected(f"a tuple of {len(members)}", value)
        pairs = zip(members, value, strict=True)
        return [item if inner is None else inner.encode(item) for inner, item in pairs]

    def decode(stored: Any) -> Any:
        pairs = zip(members, stored, strict=True)
        return tuple(item if inner is None or inner.decode is None else inner.decode(item) for inner, item in pairs)

    return Converter(encode, decode)


def _is_tuple_of(length: int, value: Any) -> bool:
    return isinstance(value, tuple) and len(cast("tuple[object, ...]", value)) == length


def _mapping(origin: type, key: Converter | None, value: Converter | None) -> Converter | None:
    if key is None and value is None:
        return _check("dict", dict) if origin is dict else None
    write_key, write = (inner.encode if inner else _same for inner in (key, value))
    read_key, read = (inner.decode if inner and inner.decode else _same for inner in (key, value))

    def encode(found: Any) -> Any:
        if not isinstance(found, abc.Mapping):
            raise _expected("dict", found)
        entries = cast("Mapping[object, Any]", found)
        return {write_key(each): write(item) for each, item in entries.items()}

    def decode(stored: Any) -> Any:
        return {read_key(each): read(item) for each, item in stored.items()}

    return Converter(encode, decode)


def _key(annotation: object) -> Converter | None:
    """Return the converter of keys, if they need one. Serializers such as JSON turn numbers into strings."""
    kind, found = _bare(annotation), converter_of(annotation)
    if kind in _KEYS:
        return Converter(_same, _KEYS[kind])
    if found is None or found.decode is None:
        return None
    if not (isinstance(kind, type) and issubclass(kind, Enum)):
        return found
    read = found.decode

    def decode(stored: Any) -> Any:
        try:
            return read(stored)
        except ValueError:
            return read(int(stored))

    return Converter(found.encode, decode)


_KEYS: Final[Mapping[type, Convert]] = {
    int: lambda stored: int(stored) if isinstance(stored, str) else stored,
    float: lambda stored: float(stored) if isinstance(stored, str) else stored,
    bool: lambda stored: stored == "true" if isinstance(stored, str) else stored,
}


def _same(value: Any) -> Any:
    return value
