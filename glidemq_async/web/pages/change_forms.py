"""What a form of a change consists of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from glidemq_async.ops.access import Role
from glidemq_async.ops.core import Ops

Form: TypeAlias = Mapping[str, str]
Present: TypeAlias = "Callable[[Ops, Form], Awaitable[Form]]"
"""Takes the core and the target. Returns the present values of the fields, for the form."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeForm:
    """A change. `title` and `text` name its target by the fields of the form, for example `{queue}`.

    `present` returns the values with which the form begins. A change with `typed` happens only if the name of the queue
    was typed.
    """

    title: str
    text: str
    verb: str
    run: Run
    role: Role = "operator"
    fields: tuple[FormField, ...] = ()
    present: Present | None = None
    is_dangerous: bool = False
    typed: bool = False
