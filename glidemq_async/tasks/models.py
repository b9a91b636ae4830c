"""Dataclasses, named tuples and pydantic models as arguments and results. They are stored as maps and rebuilt."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import cached_property
from inspect import Parameter, signature
from typing import Any, NamedTuple, TypeAlias, cast

from glidemq_async.tasks.field_hints import field_hints

Convert: TypeAlias = Callable[[Any], Any]


class Converter(NamedTuple):
    """Both directions for one annotation. `encode` raises TypeError for a wrong value.

    `decode` None keeps the value. `unchanged` is a type whose values, without those of subclasses, `encode` returns as
    they are.
    """

    encode: Convert
    decode: Convert | None
    unchanged: type | None = None


ConverterOf: TypeAlias = Callable[[object], Converter | None]


class _FieldConverters(NamedTuple):
    encoders: dict[str, Convert | None]
    decoders: dict[str, Convert]


def fields_converter(kind: type, args: tuple[Any, ...], converter_of: ConverterOf) -> Converter:
    """Return the converter of a dataclass or named tuple; `args` are the arguments of a generic class.

    Fields that its `__init__` does not accept are not stored.
    """
    found = _FieldsConverter(kind, args, converter_of)
    return Converter(found.encode, found.decode)


class _FieldsConverter:
    def __init__(self, kind: type, args: tuple[Any, ...], converter_of: ConverterOf) -> None:
        self._kind = kind
        self._args = args
        self._converter_of = converter_of

    # Resolved on first use, because a field may be annotated with its own class.
    @cached_property
    def _known(self) -> _FieldConverters:
        names = _fields(self._kind)
        try:
            hints = field_hints(self._kind, self._args)
        except NameError as error:  # an import for type checkers only
            raise TypeError(f"is a {self._kind.__name__}, whose annotations cannot be resolved: {error}") from error
        found = {name: self._converter_of(hints.get(name)) for name in names}
        return _FieldConverters(
            {name: each.encode if each else None for name, each in found.items()},
            {name: each.decode for name, each in found.items() if each and each.decode},
        )

    def encode(self, value: Any) -> Any:
        _check_type(self._kind, value)
        stored: dict[str, Any] = {}
        for name, write in self._known.encoders.items():
            item = getattr(value, name)
            try:
                stored[name] = item if write is None else write(item)
            except TypeError as error:
                raise TypeError(f".{name} {error}") from None
        return stored

    def decode(self, stored: Any) -> Any:
        encoders, decoders = self._known
        # Ignore fields that a newer program has stored and this one does not know.
        given = {name: item for name, item in stored.items() if name in encoders}
        for name, read in decoders.items():
            if name in given:
                given[name] = read(given[name])
        return self._kind(**given)


def _fields(kind: Any) -> list[str]:
    """Return its field names. Raises TypeError for a class that cannot be rebuilt from its fields alone."""
    if is_named_tuple(kind):
        return list(kind._fields)
    names = [field.name for field in fields(kind) if field.init]
    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    for name, parameter in signature(kind).parameters.items():
        if name not in names and parameter.kind not in variable:
            raise TypeError(f"cannot be rebuilt from the fields of {kind.__name__}: its __init__ also takes {name!r}")
    return names


def _check_type(kind: type, value: object) -> None:
    # Exactly this class. A subclass would be stored with the fields of its base and come back as the base, without any
    # error.
    if type(value) is kind:
        return
    more = f", which would come back as {kind.__name__}" if isinstance(value, kind) else ""
    raise TypeError(f"must be {kind.__name__}, got {shortened(value)}{more}")


def shortened(value: object) -> str:
    """Return a value as shown in an error message."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:79] + "…"


def is_named_tuple(kind: type) -> bool:
    """Return whether a class is a typing.NamedTuple or a collections.namedtuple."""
    return issubclass(kind, tuple) and hasattr(cast("object", kind), "_fields")


def is_pydantic_model(kind: type) -> bool:
    """Return whether a class is a pydantic model, without importing pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def pydantic_converter(kind: Any) -> Converter:
    """Return the converter of a pydantic model. It stores the JSON form and validates it on reading."""

    def encode(value: Any) -> Any:
        _check_type(kind, value)
        try:
            return value.model_dump(mode="json", by_alias=False, round_trip=True)
        except ValueError as error:  # bytes that are not text, or a type that pydantic does not know
            raise TypeError(f"has no JSON form: {error}") from error

    def decode(stored: Any) -> Any:
        # Validate as JSON, because a strict model accepts strings for dates only there.
        text = json.dumps(stored)
        try:
            return kind.model_validate_json(text, by_alias=False, by_name=True)
        except ValueError as error:
            raise ValueError(_in_one_line(error)) from error

    return Converter(encode, decode)


def _in_one_line(error: ValueError) -> str:
    """Summarize validation errors by field name, without the values, which may be long or secret."""
    found: Any = error
    if not hasattr(found, "errors"):
        return str(error)
    faults = [(".".join(map(str, one["loc"])), one["msg"]) for one in found.errors(include_url=False)]
    return "; ".join(f"{where}: {what}" if where else what for where, what in faults)
