"""Named points at which a test can interrupt the running code. A disabled point costs a single attribute read.

Only code of the same process can enable a point (`arm`), never an environment variable, so deployments are safe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

NAMES: Final = frozenset(
    {
        "add.before_send",
        "add.after_reply",
        "claim.before_send",
        "claim.after_reply",
        "run.before_handler",
        "run.after_handler",
        "complete.before_send",
        "complete.after_reply",
        "fail.before_send",
        "push.before_start",
        "relay.before_deliver",
        "relay.after_deliver",
        "renew.before_send",
        "renew.lost",
        "sweep.before_send",
        "migrate.before_step",
        "shutdown.after_stop_claiming",
        "shutdown.before_release",
        "subscribe.after_confirm",
    }
)

_actions: dict[str, Callable[[], None]] = {}
armed: bool = False
"""True if any point is armed. Callers check it first: ``if failpoints.armed: failpoints.hit(name)``."""


def arm(name: str, action: Callable[[], None]) -> None:
    """Run `action` whenever the point `name` is reached. Raises ValueError for an unknown name."""
    global armed  # noqa: PLW0603
    if name not in NAMES:
        raise ValueError(f"unknown failpoint {name!r}; the known ones are {', '.join(sorted(NAMES))}")
    _actions[name] = action
    armed = True


def disarm() -> None:
    """Disarm every point."""
    global armed  # noqa: PLW0603
    _actions.clear()
    armed = False


def hit(name: str) -> None:
    """Run the action that is armed at this point."""
    action = _actions.get(name)
    if action is not None:
        action()
