"""The figures of workflows and flows, their targets, and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.tables import markdown


class Figure(NamedTuple):
    """One measured figure. It is met if it is not above `most`, or not below `least`."""

    name: str
    value: float
    unit: str
    most: float | None = None
    least: float | None = None

    @property
    def is_met(self) -> bool:
        """True if the target is met, or if there is none."""
        over = self.most is not None and self.value > self.most
        under = self.least is not None and self.value < self.least
        return not over and not under

    def row(self) -> list[str]:
        """Return the line of the table."""
        target = "" if self.most is None else f"<= {self.most:g}"
        target = target if self.least is None else f">= {self.least:g}"
        verdict = "" if not target else "met" if self.is_met else "missed"
        return [
            self.name,
            f"{self.value:,.4g}" if self.value < 1000 else f"{self.value:,.0f}",
            self.unit,
            target,
            verdict,
        ]


HEAD: Final = """# Workflows and flows

Written by `make bench-workflows`. Times of the server are its own times for function calls.
"""


def section(name: str, figures: Sequence[Figure], machine: Mapping[str, str]) -> str:
    """Return the section of one part of the benchmark: where and when it was measured, and its figures."""
    return "\n".join(
        [
            f"## {name.capitalize()}",
            "",
            *(f"- {key}: {value}" for key, value in machine.items() if key != "pace"),
            "",
            markdown([["", "figure", "unit", "target", ""], *(figure.row() for figure in figures)]),
            "",
        ]
    )


def updated(page: str, names: Sequence[str], sections: Mapping[str, str]) -> str:
    """Return `page` with new sections. A part that was not measured keeps its old section."""
    kept = {title.split("\n", 1)[0].lower(): f"## {title}" for title in page.split("\n## ")[1:]}
    found = {**kept, **sections}
    return "\n".join([HEAD, *(f"{found[name].rstrip()}\n" for name in names if name in found)])
