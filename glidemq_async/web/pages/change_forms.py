"""The parts of the form of a change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from glidemq_async.ops.core import Ops

Form: TypeAlias = Mapping[str, str]
Present: TypeAlias = "Callable[[Ops, Form], Awaitable[Form]]"
"""Takes the core and the target. Returns the present values of the fields, for the form."""
Arguments: TypeAlias = "Callable[[Form], Mapping[str, Any]]"
"""Takes the fields of the form. Returns the arguments of the change."""
Run: TypeAlias = "Callable[[Ops, Form, str], Awaitable[str]]"
"""Takes the core, the fields of the form with its target, and the reason. Returns a sentence about what happened."""


class BadField(ValueError):
    """Raised for a field of a form with a value that cannot be used. Its text is shown in the form."""


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form. `kind` is "text", "number", "area", "choice" or "hidden"."""

    name: str
    label: str
    hint: str = ""
    kind: str = "text"
    value: str = ""
    placeholder: str = ""
    required: bool = False
    options: tuple[str, ...] = ()


def no_arguments(_form: Form) -> Mapping[str, Any]:
    """Return no arguments."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeForm:
    """The form of a change, whose target and role are in the table of changes under the same name.

    - `title` and `text` name the target by the fields of the form, for example `{queue}`.
    - `arguments` returns the arguments of the change. With `changed_only`, arguments that are as before are left out.
    - `done` says what has happened, with `{count}` for the number of changed jobs. A form whose sentence depends on
      more than that has `run` instead of `arguments` and `done`.
    - `present` returns the values with which the form begins.
    - A change with `typed` happens only if the name of the queue was typed.
    """

    title: str
    text: str
    verb: str
    arguments: Arguments = no_arguments
    done: str = ""
    run: Run | None = None
    fields: tuple[FormField, ...] = ()
    present: Present | None = None
    changed_only: bool = False
    typed: bool = False
