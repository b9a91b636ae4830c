"""One finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it is, and what to do about it ("" when nothing is wrong)."""

    name: str
    status: Status
    detail: str
    advice: str = ""


def ok(name: str, detail: str) -> Check:
    """A finding that is as it should be."""
    return Check(name, "ok", detail)


def warn(name: str, detail: str, advice: str) -> Check:
    """A finding that may hurt."""
    return Check(name, "warn", detail, advice)


def fail(name: str, detail: str, advice: str) -> Check:
    """A finding that loses jobs, or keeps the library from working."""
    return Check(name, "fail", detail, advice)
