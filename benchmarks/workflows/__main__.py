"""`python -m benchmarks.workflows`: measure, print, and write docs/reports/workflows.md."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.report import ROOT, surroundings
from benchmarks.server import running_server
from benchmarks.workflows import faults, flows, steps, suspended
from benchmarks.workflows.figures import Figure, page

PAGE: Final = ROOT / "docs" / "reports" / "workflows.md"
PARTS: Final = ("steps", "flows", "suspended", "faults")
PART_SECONDS: Final = 3_600.0
"""Seconds after which a part is stopped."""


def parts_of(scale: float, url: str) -> dict[str, Callable[[], Awaitable[list[Figure]]]]:
    """Return the parts of the benchmark. `scale` is the size to the full one."""

    def size(full: int) -> int:
        return max(20, round(full * scale))

    return {
        "steps": partial(steps.measure, url, size(50_000)),
        "flows": partial(flows.measure, url, size(100_000), size(10_000), size(100_000)),
        "suspended": partial(suspended.measure, url, size(100_000), size(1_000_000)),
        "faults": partial(faults.measure, scale),
    }


async def measure(scale: float, only: Sequence[str]) -> list[Figure]:
    """Measure some parts, and print the figures of each."""
    found: list[Figure] = []
    for name in PARTS:
        if name in only:
            with running_server() as url:
                figures = await asyncio.wait_for(parts_of(scale, url)[name](), PART_SECONDS)
            for figure in figures:
                print("  ".join(figure.row()), flush=True)
            found += figures
    return found


def main() -> None:
    """Measure, print the figures, and write the page of a full run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workflows", description="Measure workflows and flows.")
    parser.add_argument("--scale", type=float, default=1.0, help="the size to the full one (1)")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="the parts to measure (all)")
    parser.add_argument("--output", type=Path, help="the page to write (docs/reports/workflows.md for a full run)")
    asked = parser.parse_args()
    machine = surroundings(os.getloadavg()[0])
    only = asked.only or PARTS
    figures = uvloop.run(measure(asked.scale, only))
    output = asked.output or (PAGE if asked.scale == 1.0 and only == PARTS else None)
    if output is not None:
        output.write_text(page(figures, machine), encoding="utf-8")


if __name__ == "__main__":
    main()
