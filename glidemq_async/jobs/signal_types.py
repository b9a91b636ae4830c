"""The classes of typed signals. `mq.signal` registers a class with its name and its conversion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from glidemq_async.errors import SerializationError

T = TypeVar("T")


class SignalType(NamedTuple):
    """The name of a signal, and both directions of its conversion. `encode` raises TypeError for a wrong value."""

    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


_types: WeakKeyDictionary[type, SignalType] = WeakKeyDictionary()


def register_signal(kind: type, signal: SignalType) -> None:
    """Register a class whose instances can be sent as signals."""
    _types[kind] = signal


def signal_type(kind: type) -> SignalType:
    """Return the registration of a class. Raises TypeError without one."""
    found = _types.get(kind)
    if found is None:
        raise TypeError(f"{kind.__name__} is not a signal; decorate the class with @mq.signal")
    return found


def name_of(signal: str | type) -> str:
    """Return the name of a signal, which is given as its name or its class."""
    return signal_type(signal).name if isinstance(signal, type) else signal


def payload_of(value: object) -> object:
    """Return the payload of an instance of a registered class, and any other value as it is. Raises TypeError."""
    found = _types.get(type(value))
    return value if found is None else found.encode(value)


def decoded(kind: type[T], data: object) -> T:
    """Return a signal from its payload. Raises SerializationError for other payloads, TypeError for other classes."""
    found = signal_type(kind)
    try:
        value = found.decode(data)
    except Exception as error:
        raise SerializationError(
            f"a signal {found.name!r} cannot be read as {kind.__name__}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(value, kind):
        raise SerializationError(f"a signal {found.name!r} cannot be read as {kind.__name__}: it is {str(data)[:80]!r}")
    return value
