"""One finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """A check with its result and a remedy ("" if nothing is wrong)."""

    name: str
    status: Status
    detail: str
    advice: str = ""


def ok(name: str, detail: str) -> Check:
    """Return a good finding."""
    return Check(name, "ok", detail)


def warn(name: str, detail: str, advice: str) -> Check:
    """Return a finding that may cause problems."""
    return Check(name, "warn", detail, advice)


def fail(name: str, detail: str, advice: str) -> Check:
    """Return a finding that loses jobs or prevents the library from working."""
    return Check(name, "fail", detail, advice)
