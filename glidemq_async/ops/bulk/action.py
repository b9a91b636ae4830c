"""The actions of bulk operations: their arguments, and the states in which they change a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, cast

from glidemq_async.durations import to_ms
from glidemq_async.functions.bulk import Action
from glidemq_async.ops.moves import check_options
from glidemq_async.options.validation import reason as check_reason
from glidemq_async.stored.record import FINAL, STATES, WAITING, State

_MOVABLE: Final = frozenset({*WAITING, "delayed"})


@dataclass(frozen=True, slots=True)
class ActionKind:
    """A kind of action: the names of its arguments, and the states in which it changes a job."""

    arguments: frozenset[str]
    states: Callable[[bool], frozenset[str]]
    """The states, by the argument `force`."""
    restarts: bool = False
    """True if the changed jobs run again, so that they may fail again."""


def _ended(force: bool) -> frozenset[str]:
    return FINAL if force else frozenset({"failed"})


KINDS: Final[Mapping[Action, ActionKind]] = {
    "retry": ActionKind(frozenset({"force"}), _ended, restarts=True),
    "cancel": ActionKind(frozenset(), lambda _: frozenset(STATES) - FINAL),
    "promote": ActionKind(frozenset(), lambda _: frozenset({"delayed"}), restarts=True),
    "delay": ActionKind(frozenset({"delay"}), lambda _: _MOVABLE),
    "move": ActionKind(frozenset({"to"}), lambda _: _MOVABLE | {"failed"}),
    "delete": ActionKind(frozenset(), lambda _: frozenset(STATES)),
    "edit": ActionKind(
        frozenset({"data", "options", "force"}),
        lambda force: _MOVABLE | {"waiting-children"} | _ended(force),
        restarts=True,
    ),
}


class ActionCall:
    """An action with its arguments. Raises ValueError or TypeError for an unknown action and for bad arguments."""

    def __init__(self, name: str, arguments: Mapping[str, Any], reason: str = "") -> None:
        if name not in KINDS:
            close = get_close_matches(name, KINDS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"the actions are {', '.join(KINDS)}"
            raise ValueError(f"there is no action {name!r}: {hint}")
        self.name: Action = cast("Action", name)
        self.kind = KINDS[self.name]
        self.arguments = {key: value for key, value in arguments.items() if value is not None}
        self.reason = check_reason("reason", reason or None) or ""
        if unknown := sorted(self.arguments.keys() - self.kind.arguments):
            allowed = ", ".join(sorted(self.kind.arguments)) or "none"
            raise TypeError(f"{name} has no argument {unknown[0]!r}; its arguments are: {allowed}")
        self._check()

    def _check(self) -> None:
        for required in self.kind.arguments & {"delay", "to"}:
            if required not in self.arguments:
                raise TypeError(f"{self.name} needs the argument {required!r}")
        if self.name == "edit":
            if not self.arguments.keys() & {"data", "options"}:
                raise TypeError("edit needs the argument 'data' or 'options'")
            check_options(self.options)
        if self.name == "delay":
            to_ms("delay", self.arguments["delay"])

    @property
    def is_forced(self) -> bool:
        """True if completed jobs are restarted too."""
        return bool(self.arguments.get("force", False))

    @property
    def to(self) -> str:
        """The target of a move, "" for other actions."""
        return str(self.arguments.get("to", ""))

    @property
    def data(self) -> object:
        """The new data of an edit, or the new arguments by name; None = unchanged."""
        return self.arguments.get("data")

    @property
    def options(self) -> Mapping[str, Any]:
        """The new options of an edit."""
        return cast("Mapping[str, Any]", self.arguments.get("options", {}))

    def changes(self, state: State) -> bool:
        """Return whether a job in this state is changed."""
        return state in self.kind.states(self.is_forced)

    def argument(self, target_base: str = "") -> str:
        """Return the argument of the server's function. `target_base` is the base key of the target of a move."""
        if self.name == "cancel":
            return self.reason
        if self.name == "delay":
            return str(to_ms("delay", self.arguments["delay"]))
        return target_base if self.name == "move" else "1" if self.is_forced else ""
