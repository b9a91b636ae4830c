"""The classes of typed signals: their names, and their conversion as for the arguments of tasks."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, TypeVar

from glidemq_async.jobs.signal_types import SignalType, register_signal
from glidemq_async.stored.names import check_id
from glidemq_async.tasks.models import is_named_tuple, is_pydantic_model
from glidemq_async.tasks.values import converter_of

Kind = TypeVar("Kind")


def declare_signal(kind: type[Kind], name: str | None) -> type[Kind]:
    """Register a class of signals and return it. Raises TypeError or ValueError."""
    if not isinstance(kind, type):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"mq.signal decorates a class, not {kind!r}")
    if not (is_dataclass(kind) or is_named_tuple(kind) or is_pydantic_model(kind)):
        raise TypeError(
            f"{kind.__name__} cannot be a signal: it must be a dataclass, a NamedTuple or a pydantic model. "
            "Put @mq.signal above @dataclass"
        )
    converter = converter_of(kind)
    if converter is None or converter.decode is None:
        raise TypeError(f"{kind.__name__} cannot be a signal: its instances cannot be stored and read again")
    called = kind.__name__ if name is None else check_id("name", name)
    register_signal(kind, SignalType(called, _encoder(kind, converter.encode), converter.decode))
    return kind


def _encoder(kind: type, encode: Any) -> Any:
    def checked(value: object) -> object:
        try:
            return encode(value)
        except TypeError as error:
            raise TypeError(f"signal {kind.__name__}: {error}") from None

    return checked
