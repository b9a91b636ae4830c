"""`python -m benchmarks.workflows`: measure, print, and write docs/reports/workflows.md."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.report import ROOT, surroundings
from benchmarks.server import running_server
from benchmarks.workflows import flows, steps, suspended
from benchmarks.workflows.figures import Figure, page

PAGE: Final = ROOT / "docs" / "reports" / "workflows.md"


async def measure(scale: float) -> list[Figure]:
    """Return all figures. `scale` is the size to the full one."""

    def size(full: int) -> int:
        return max(20, round(full * scale))

    with running_server() as url:
        return [
            *await suspended.measure(url, size(1_000_000), size(20_000)),
            *await steps.measure(url, size(50_000)),
            *await flows.measure(url, size(100_000), size(10_000), size(100_000)),
        ]


def main() -> None:
    """Measure, print the figures, and write the page of a full run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workflows", description="Measure workflows and flows.")
    parser.add_argument("--scale", type=float, default=1.0, help="the size to the full one (1)")
    parser.add_argument("--output", type=Path, help="the page to write (docs/reports/workflows.md for a full run)")
    asked = parser.parse_args()
    machine = surroundings(os.getloadavg()[0])
    figures = uvloop.run(measure(asked.scale))
    for figure in figures:
        print("  ".join(figure.row()))
    output = asked.output or (PAGE if asked.scale == 1.0 else None)
    if output is not None:
        output.write_text(page(figures, machine), encoding="utf-8")


if __name__ == "__main__":
    main()
