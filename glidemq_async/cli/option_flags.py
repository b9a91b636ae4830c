"""Flags of commands that derive from a table of options, so that the table alone states them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any

import typer

from glidemq_async.cli.option_groups import declare
from glidemq_async.options.table import Flag


def with_flags(
    flags: Mapping[str, tuple[Flag, object]], after: str, note: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds flags to a command, directly after its parameter `after`.

    `flags` has the flag and the shown default of each option; `note` is appended to each help text. The command
    receives the options that were typed as keywords, by the names of the options.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*args: Any, **typed: Any) -> None:
            # A flag that can be repeated is an empty list if it was not typed.
            given = {name: value for name, value in typed.items() if name not in flags or value not in (None, [])}
            command(*args, **given)

        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        at = [each.name for each in own].index(after) + 1
        added = [_parameter(name, flag, default, note) for name, (flag, default) in flags.items()]
        return declare(run, [*own[:at], *added, *own[at:]])

    return decorate


def _parameter(name: str, flag: Flag, default: object, note: str) -> inspect.Parameter:
    names = [flag.name or f"--{name.replace('_', '-')}", *([flag.short] if flag.short else [])]
    option: object = typer.Option(
        *names,
        min=flag.least,
        max=flag.most,
        metavar=flag.metavar,
        help=flag.help + note,
        show_default=default is not None and str(default),
    )
    annotation: object = Annotated[flag.kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
