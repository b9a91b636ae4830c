"""The kinds of jobs that wait in a structure of their own."""

from __future__ import annotations

from typing import Any

KINDS = ("lifo", "prioritized", "keyed")


def options_of(kind: str, number: int) -> dict[str, Any]:
    """Return the options of a job of this kind, none for "plain". Each keyed job has a key of its own."""
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "lifo": {"lifo": True},
        "prioritized": {"priority": 3},
        "keyed": {"key": f"a key {number}"},
    }
    return options[kind]
