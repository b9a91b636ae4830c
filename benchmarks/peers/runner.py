"""Measures all candidates in rounds on one server. A candidate that fails is reported with its error."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks import venvs
from benchmarks.figures import MeasuredRows
from benchmarks.peers.catalogue import COMMON, Candidate
from benchmarks.peers.phases import PhaseFailed, fill_and_drain, idle_latency
from benchmarks.report import load
from benchmarks.server import ask, connected

Say = Callable[[str], None]


@dataclass(slots=True)
class PeerRun:
    """The figures of a run by title and phase, the versions, and the errors."""

    figures: MeasuredRows = field(default_factory=MeasuredRows)
    versions: dict[str, str] = field(default_factory=dict[str, str])
    failures: dict[str, str] = field(default_factory=dict[str, str])


def newest_python() -> str:
    """Return the newest known version of Python that starts. All candidates run on it."""
    return next(filter(None, map(venvs.find_python, reversed(venvs.VERSIONS))))


def install_all(run: PeerRun, candidates: Sequence[Candidate], python: str, say: Say, *, build: bool = True) -> None:
    """Build the environment of each candidate; note the versions and the errors."""
    for candidate in candidates:
        try:
            if build:
                say(f"installing {candidate.title}")
                venvs.install(candidate.name, python, [*candidate.requirements, *COMMON])
            run.versions[candidate.title] = _version(str(venvs.python_in(candidate.name)), candidate.package)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
            run.failures[candidate.title] = f"installation: {last_line(error)}"


def last_line(error: Exception) -> str:
    """Return the last line of an installer's output, or the error itself."""
    output = (getattr(error, "stderr", None) or "") + (getattr(error, "stdout", None) or "")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else f"{type(error).__name__}: {error}"


def _version(python: str, package: str) -> str:
    ask_version = [python, "-c", f"from importlib.metadata import version; print(version({package!r}))"]
    return subprocess.run(ask_version, capture_output=True, text=True, check=True).stdout.strip()


def in_turns(candidates: Sequence[Candidate], number: int) -> list[Candidate]:
    """Return the candidates of one round. Every second round runs backwards."""
    return list(candidates)[::-1] if number % 2 else list(candidates)


async def measure_all(run: PeerRun, candidates: Sequence[Candidate], rounds: int, url: str, say: Say) -> None:
    """Run all rounds. A candidate that failed is left out of later rounds."""
    for number in range(rounds):
        for candidate in in_turns(candidates, number):
            if candidate.title in run.failures:
                continue
            say(f"round {number + 1}/{rounds}: {candidate.title}, load {load():.1f}")
            try:
                await _measure(run, candidate, number, url)
            except (PhaseFailed, TimeoutError) as error:
                run.failures[candidate.title] = str(error) or "idle: no result in time"
                say(f"!!! {candidate.title}: {run.failures[candidate.title]}")


async def _measure(run: PeerRun, candidate: Candidate, number: int, url: str) -> None:
    await _empty(url)
    for phase, metrics in (await fill_and_drain(candidate, url)).items():
        run.figures.add(number, {row_of(candidate.title, phase): metrics})
    await _empty(url)
    run.figures.add(number, {row_of(candidate.title, "idle"): await idle_latency(candidate, url)})


def row_of(title: str, phase: str) -> str:
    """Return the row of one phase of a candidate."""
    return f"{title}: {phase}"


async def _empty(url: str) -> None:
    async with connected(url) as wire:
        await ask(wire, "FLUSHALL", "SYNC")
