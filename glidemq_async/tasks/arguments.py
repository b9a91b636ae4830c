"""The arguments of a task: checked against its signature, stored as plain values, and read again.

The signature is analysed once, so that a call is checked with a few comparisons.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from inspect import Parameter, Signature
from types import SimpleNamespace
from typing import Any, Final, Literal, TypeAlias, TypeGuard, cast, get_type_hints

from glidemq_async.errors import JobFailed, SerializationError
from glidemq_async.options.job_options import JobOptionsDict
from glidemq_async.options.validation import WAIT_OPTIONS
from glidemq_async.stored.flow import JobRef
from glidemq_async.tasks.call_failure import stored_failure
from glidemq_async.tasks.values import Converter, converter_of

_PATH: Final = re.compile(r"\$\.(?:a\[(\d+)\]|k\.(\w+))(.*)", re.DOTALL)
"""The path to a value inside an argument, by position or by name."""
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


Shape: TypeAlias = Literal["one", "tuple", "list", "failure"]
"""The form in which results of other jobs become the first argument of a call. "failure": the failure of one job."""
_AFTER: Final = "after"


def is_spared(data: dict[str, Any], values: Mapping[JobRef, Any]) -> bool:
    """Return whether a call of `otherwise` has nothing to do, because the call before it has a result."""
    return data[_AFTER] == "failure" and not any(isinstance(value, JobFailed) for value in values.values())


def comes_after(data: object) -> TypeGuard[dict[str, Any]]:
    """Return whether data were made by `Arguments.stored_after`."""
    return isinstance(data, dict) and _AFTER in data


def _hint_at_option(name: str) -> str:
    if name in JobOptionsDict.__annotations__:
        return f"; it is a job option: call options({name}=...) first"
    return f"; it is an option of add_and_wait: call wait_options({name}=...) first" if name in WAIT_OPTIONS else ""


class _Converted:
    """Stands for the types of an argument if each value must be converted. No value has this type."""


class Arguments:
    """Checks, stores and reads the arguments of one function, except the injected ones."""

    def __init__(
        self, name: str, function: Callable[..., Any], injected: frozenset[str], kind: Literal["task", "step"] = "task"
    ) -> None:
        self._called = f"{kind} {name!r}"
        self._takes_options = kind == "task"
        hints = _hints(function)
        self.signature: Signature = _signature(function, hints, injected)
        """The parameters that callers pass."""
        self._injected = injected
        parameters = self.signature.parameters.values()
        self._positions = [each.name for each in parameters if each.kind in _POSITIONAL]
        self._most = len(self._positions)
        required = [each for each in parameters if each.default is Parameter.empty]
        self._least = sum(each.kind in _POSITIONAL for each in required)
        self._keywords = {each.name for each in required if each.kind is Parameter.KEYWORD_ONLY}
        self._indexes = {
            each.name: index
            for index, each in enumerate(parameters)
            if each.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        }
        kinds = {each.kind: each for each in parameters}
        self._rest, self._others = kinds.get(Parameter.VAR_POSITIONAL), kinds.get(Parameter.VAR_KEYWORD)
        self._converters, self.result = self._made(hints)
        self._unchanged = [self._unchanged_at(name) for name in self._positions]
        self.plain = not any(converter.decode for converter in self._converters.values())
        """True if the arguments are stored unchanged."""

    def _made(self, hints: Mapping[str, Any]) -> tuple[dict[str, Converter], Converter | None]:
        found = {name: converter_of(hints[name]) for name in self.signature.parameters if name in hints}
        returned = converter_of(hints["return"]) if "return" in hints else None
        # A result that is stored unchanged is not checked; that is the job of a type checker.
        result = returned if returned is not None and returned.decode is not None else None
        return {name: converter for name, converter in found.items() if converter is not None}, result

    def _unchanged_at(self, name: str) -> type | None:
        """Return the type of values that are stored unchanged, None for all values."""
        converter = self._converters.get(name)
        return None if converter is None else converter.unchanged or _Converted

    # -- adding ---------------------------------------------------------------------------------------------------

    def stored(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the data of a job that makes this call.

        Raises TypeError, which names the argument, if the signature or an annotation does not allow the call.
        """
        if not self._fits(len(args), kwargs):
            self._bind(args, kwargs)
        if not self._converters:
            return {"a": list(args), "k": kwargs}
        values = self._encoded_positions(args)
        return {
            "a": values,
            "k": {name: self._encoded(name, value) for name, value in kwargs.items()} if kwargs else {},
        }

    def stored_after(self, shape: Shape, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the data of a job whose first argument is the result of other jobs. Raises TypeError like `stored`."""
        if not self._fits(len(args) + 1, kwargs):
            self._bind((None, *args), kwargs)
        values = [self._encoded(self._name_at(place), value) for place, value in enumerate(args, 1)]
        return {
            _AFTER: shape,
            "rest": values,
            "k": {name: self._encoded(name, value) for name, value in kwargs.items()},
        }

    def named(self, error: SerializationError) -> SerializationError:
        """Replace the path in an encoding error by the name of the argument."""
        found = _PATH.match(error.path)
        if found is None or type(error) is not SerializationError:
            return error
        index, name, rest = found.groups()
        name = name or self._name_at(int(index)) or f"number {int(index) + 1}"
        text = str(error).replace(error.path, f"argument {name!r}{rest}", 1)
        return SerializationError(f"{self._called}: {text}", error.path)

    def _fits(self, count: int, kwargs: dict[str, Any]) -> bool:
        """Return True if a call certainly fits. A call for which this returns False may fit too."""
        # `Signature.bind` costs about 5 us, and every add and every run needs the check. Some comparisons recognize
        # the usual calls. False only means "ask `bind`", which also has the text of the error.
        if not kwargs:
            return self._least <= count <= self._most and not self._keywords
        indexes = self._indexes
        for name in kwargs:
            index = indexes.get(name)
            if index is None or index < count:
                return False
        if count > self._most or not self._keywords <= kwargs.keys():
            return False
        return all(name in kwargs for name in self._positions[count : self._least])

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for name in kwargs:
            if name in self._injected:
                raise TypeError(f"{self._called}: {name!r} is a dependency, which the worker provides; leave it out")
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            reason = self._unexpected(kwargs) or str(error)
            raise TypeError(f"{self._called}{self.signature}: {reason}") from None

    # `bind` looks for missing arguments first. A mistyped name causes both errors, and the unknown name explains more.
    def _unexpected(self, kwargs: dict[str, Any]) -> str:
        """Return the reason if a call has an argument that the signature does not have, else ""."""
        if self._others is not None:
            return ""
        known = self.signature.parameters
        name = next((name for name in kwargs if name not in known), None)
        if name is None:
            return ""
        hint = _hint_at_option(name) if self._takes_options else ""
        if not hint and (near := get_close_matches(name, known, 1)):
            hint = f"; did you mean {near[0]!r}?"
        return f"got an unexpected argument {name!r}{hint}"

    def _name_at(self, index: int) -> str:
        if index < self._most:
            return self._positions[index]
        return self._rest.name if self._rest else ""

    def _converter(self, name: str) -> Converter | None:
        if name in self._indexes or self._others is None:
            return self._converters.get(name)
        return self._converters.get(name) or self._converters.get(self._others.name)

    def _encoded_positions(self, args: tuple[Any, ...]) -> list[Any]:
        if len(args) > self._most:
            return [self._encoded(self._name_at(index), value) for index, value in enumerate(args)]
        values = list(args)
        for index, unchanged in enumerate(self._unchanged[: len(args)]):
            if unchanged is not None and type(values[index]) is not unchanged:
                values[index] = self._encoded(self._positions[index], values[index])
        return values

    def _encoded(self, name: str, value: Any) -> Any:
        converter = self._converter(name)
        if converter is None:
            return value
        try:
            return converter.encode(value)
        except TypeError as error:
            parameter = self.signature.parameters.get(name)
            # `to: str = None` is a common way to write an optional text.
            if parameter is not None and value is None and parameter.default is None:
                return None
            raise TypeError(f"{self._called}: argument {name!r} {error}") from None

    # -- running --------------------------------------------------------------------------------------------------

    def read(self, data: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a stored call. Raises SerializationError for invalid data."""
        args, kwargs = self.split(data)
        if self.plain:
            return args, kwargs
        values = [self._decoded(self._name_at(index), value) for index, value in enumerate(args)]
        return values, {name: self._decoded(name, value) for name, value in kwargs.items()}

    def known(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a stored call by parameter, with defaults, without the result of another job."""
        if not comes_after(data):
            args, kwargs = self.read(data)
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return bound.arguments
        rest = [self._decoded(self._name_at(place), value) for place, value in enumerate(data["rest"], 1)]
        named = {name: self._decoded(name, value) for name, value in data["k"].items()}
        bound = self.signature.bind(None, *rest, **named)
        bound.apply_defaults()
        first = next(iter(bound.arguments))
        if self.signature.parameters[first].kind is Parameter.VAR_POSITIONAL:
            return {**bound.arguments, first: bound.arguments[first][1:]}
        return {name: value for name, value in bound.arguments.items() if name != first}

    def split(self, data: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a stored call in their stored form. Raises the same errors as `read`."""
        try:
            args, kwargs = data["a"], data["k"]
        except (TypeError, KeyError, IndexError):
            args, kwargs = self._incomplete(data)
        # A str is iterable too, but its characters are never the intended arguments.
        if not isinstance(args, list | tuple) or not isinstance(kwargs, Mapping):
            raise self._no_call(data)
        found = cast("list[Any]", args), cast("dict[str, Any]", kwargs)
        self.check_stored(*found)
        return found

    def check(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Raise TypeError, which names the argument, if a new call does not fit the signature."""
        if not self._fits(len(args), kwargs):
            self._bind(tuple(args), kwargs)

    def check_stored(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Raise SerializationError, which names the argument, if a stored call does not fit the signature."""
        if self._fits(len(args), kwargs):
            return
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise SerializationError(
                f"the stored arguments do not fit {self._called}{self.signature}: {error}. If the signature "
                "changed while jobs were waiting, give the new parameter a default, or declare the new signature with "
                "version=2 and keep the old function under its name; for a renamed task keep the old name in aliases="
            ) from None

    def stored_result(self, value: Any) -> Any:
        """Return the stored form of a result. Raises SerializationError if the annotation does not allow it."""
        if self.result is None:
            return value
        try:
            return self.result.encode(value)
        except TypeError as error:
            raise SerializationError(f"{self._called}: its result {error}") from None

    def read_result(self, stored: Any) -> Any:
        """Return the result from its stored form. Raises SerializationError if it cannot be decoded."""
        if self.result is None or self.result.decode is None:
            return stored
        try:
            return self.result.decode(stored)
        except Exception as error:
            raise SerializationError(
                f"a result of {self._called} cannot be read as {self.signature.return_annotation}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def with_results(self, data: dict[str, Any], values: Mapping[JobRef, Any]) -> dict[str, Any]:
        """Return the stored call of data made by `stored_after`. Raises SerializationError without a result."""
        return {"a": [self._first(data[_AFTER], values), *data["rest"]], "k": data["k"]}

    def _first(self, shape: Shape, values: Mapping[JobRef, Any]) -> Any:
        results = list(values.values())
        if shape == "list":
            return results
        if shape == "tuple":
            return tuple(results)
        if not results:
            raise SerializationError(f"the first argument of {self._called} is the result of a job that has none")
        return stored_failure(next(iter(values)), results[0]) if shape == "failure" else results[0]

    def _incomplete(self, data: Any) -> tuple[Any, Any]:
        # Jobs of a task may come from other programs, for example from `glidemq add` or from another language. They may
        # leave out an empty part.
        if data is None:
            return [], {}
        if isinstance(data, dict):
            call = cast("dict[object, Any]", data)
            if call.keys() <= {"a", "k"}:
                return call.get("a", []), call.get("k", {})
        raise self._no_call(cast("object", data))

    def _no_call(self, data: object) -> SerializationError:
        return SerializationError(
            f"the data of a job of {self._called} must be a call with arguments for {self.signature}, "
            f"not {str(data)[:80]!r}; add it with the task, or with `glidemq add`"
        )

    def _decoded(self, name: str, value: Any) -> Any:
        converter = self._converter(name)
        if converter is None or converter.decode is None:
            return value
        parameter = self.signature.parameters.get(name)
        if value is None and parameter is not None and parameter.default is None:
            return None
        try:
            return converter.decode(value)
        except Exception as error:
            hint = self.signature.parameters[name].annotation if parameter is not None else "its annotation"
            raise SerializationError(
                f"argument {name!r} of {self._called} cannot be read as {hint}: {type(error).__name__}: {error}"
            ) from error


def _signature(function: Callable[..., Any], hints: Mapping[str, Any], injected: frozenset[str]) -> Signature:
    """Return the signature without injected parameters, with annotations as types where they can be resolved."""
    whole = inspect.signature(function)
    parameters = [
        each.replace(annotation=hints.get(each.name, each.annotation))
        for each in whole.parameters.values()
        if each.name not in injected
    ]
    return whole.replace(parameters=parameters, return_annotation=hints.get("return", whole.return_annotation))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations as types, without the unresolvable ones (imports for type checkers only)."""
    # `get_type_hints` resolves all annotations or none. A single name that is imported for type checkers only would
    # take the conversion from all other arguments, so they are resolved one by one then.
    with suppress(Exception):
        return get_type_hints(function, include_extras=True)
    scope: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    found: dict[str, Any] = {}
    for name, annotation in inspect.get_annotations(function).items():
        with suppress(Exception):
            found |= get_type_hints(SimpleNamespace(__annotations__={name: annotation}), scope, include_extras=True)
    return found
