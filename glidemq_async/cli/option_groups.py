"""Groups of options that several commands share. A dataclass declares each group once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command whose type is a dataclass by the options of its fields.

    The fields have annotations of typer. The command receives the objects.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        each.name: each.annotation for each in signature.parameters.values() if is_dataclass(each.annotation)
    }

    @wraps(command)
    def run(**typed: Any) -> None:
        made = {
            name: group(**{each.name: typed.pop(each.name) for each in fields(group)}) for name, group in groups.items()
        }
        command(**made, **typed)

    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        parameters += _options(groups[each.name]) if each.name in groups else [each]
    return declare(run, parameters)


def declare(run: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """Make typer build the options of a command from these parameters. Return the command."""
    # Typer reads the parameters of a command from `inspect.signature`, which prefers `__signature__`. The types of the
    # parameters are evaluated already, in the modules that declare them. Typer passes each by keyword, so the
    # parameters may have any order, with defaults or without.
    keywords = [
        each if each.kind is inspect.Parameter.VAR_KEYWORD else each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for each in parameters
    ]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def _options(group: Any) -> list[inspect.Parameter]:
    kinds = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if each.default is MISSING else each.default,
            annotation=kinds[each.name],
        )
        for each in fields(group)
    ]
