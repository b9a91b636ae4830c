"""`python -m benchmarks.workflows`: measure, print, and write docs/reports/workflows.md."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.report import ROOT, surroundings
from benchmarks.server import running_server
from benchmarks.workflows import faults, flows, steps, suspended
from benchmarks.workflows.figures import Figure, section, updated

PAGE: Final = ROOT / "docs" / "reports" / "workflows.md"
PARTS: Final = ("steps", "flows", "suspended", "faults")
PART_SECONDS: Final = 3_600.0
"""Seconds after which a part is stopped."""


def parts_of(scale: float, url: str) -> dict[str, Callable[[], Awaitable[list[Figure]]]]:
    """Return the parts of the benchmark. `scale` is the size as a share of the full size."""

    def size(full: int) -> int:
        return max(20, round(full * scale))

    return {
        "steps": partial(steps.measure, url, size(50_000)),
        "flows": partial(flows.measure, url, size(100_000), size(10_000), size(100_000)),
        "suspended": partial(suspended.measure, url, size(100_000), size(1_000_000)),
        "faults": partial(faults.measure, scale),
    }


async def measure(name: str, scale: float) -> str:
    """Measure one part, print its figures, and return its section of the report."""
    machine = surroundings(os.getloadavg()[0])
    with running_server() as url:
        figures = await asyncio.wait_for(parts_of(scale, url)[name](), PART_SECONDS)
    for figure in figures:
        print("  ".join(figure.row()), flush=True)
    return section(name, figures, machine)


def main() -> None:
    """Measure, and print the figures. Write the figures of a full-size run into the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workflows", description="Measure workflows and flows.")
    parser.add_argument("--scale", type=float, default=1.0, help="the size as a share of the full size (1)")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="the parts to measure (all)")
    parser.add_argument("--output", type=Path, help="the page to write (docs/reports/workflows.md at the full size)")
    asked = parser.parse_args()
    output = asked.output or (PAGE if asked.scale == 1.0 else None)
    for name in asked.only or PARTS:
        found = {name: uvloop.run(measure(name, asked.scale))}
        if output is not None:
            before = output.read_text(encoding="utf-8") if output.exists() else ""
            output.write_text(updated(before, PARTS, found), encoding="utf-8")


if __name__ == "__main__":
    main()
