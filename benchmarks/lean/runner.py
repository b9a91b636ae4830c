"""Run the lean path and report it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from typing import NamedTuple

from benchmarks import report
from benchmarks.figures import MeasuredRows
from benchmarks.lean import page
from benchmarks.lean.scenarios import lacking, lean_scenarios
from benchmarks.lean.targets import LEAN_TARGETS
from benchmarks.sizes import Sizes
from benchmarks.suite import run_suite
from benchmarks.targets import judge
from glidemq_async.storage.embedded.binary import find_server

__all__ = ["LeanRun", "lacking", "measure"]


class LeanRun(NamedTuple):
    """The figures of one run, and the environment in which they were measured."""

    figures: MeasuredRows
    rounds: int
    about: dict[str, str]

    @property
    def met(self) -> bool:
        """Return whether all targets are met."""
        return all(verdict.met for verdict in judge(self.figures, LEAN_TARGETS))

    def terminal(self) -> str:
        """Return all tables for the terminal."""
        return page.terminal(self.figures)

    def section(self) -> str:
        """Return the section of the report."""
        return page.section(self.figures, self.rounds, self.about)


def measure(sizes: Sizes, rounds: int, pythons: Mapping[str, str], say: Callable[[str], None]) -> LeanRun:
    """Run all scenarios; `pythons` are the interpreters by version, and the first one runs most scenarios."""
    redis = report.server_version(shutil.which("redis-server") or "redis-server")
    servers = f"{redis}; rows with Valkey: {report.server_version(find_server())}"
    about = report.surroundings(report.load(), f"{servers}; TCP, default settings without snapshots")
    about["Python"] += f" (rows with a version: {', '.join(pythons)})"
    figures = asyncio.run(run_suite(sizes, rounds, lean_scenarios(pythons), say))
    about["load afterwards"] = f"{report.load():.1f}"
    return LeanRun(figures, rounds, about)
