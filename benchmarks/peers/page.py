"""The page docs/reports/peers.md, and the same tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.figures import MedianAndRange
from benchmarks.peers.catalogue import OURS, Candidate
from benchmarks.peers.harness import CALLERS, CONCURRENCY, PAUSE
from benchmarks.peers.phases import IDLE_JOBS, PHASE_SECONDS, WARM_UP
from benchmarks.peers.runner import PeerRun, row_of
from benchmarks.report import ROOT
from benchmarks.tables import Table, markdown, plain, spread_text

PAGE: Final = ROOT / "docs" / "reports" / "peers.md"
ADDING: Final = {
    "one by one /s": ("one", "rate"),
    f"{CALLERS} callers /s": ("callers", "rate"),
    "bulk /s": ("bulk", "rate"),
    f"client CPU µs, {CALLERS} callers": ("callers", "client_us"),
    f"server CPU µs, {CALLERS} callers": ("callers", "server_us"),
}
RUNNING: Final = {
    "drain jobs/s": ("drain", "rate"),
    "worker CPU µs/job": ("drain", "client_us"),
    "server CPU µs/job": ("drain", "server_us"),
    "idle p50 µs": ("idle", "p50_us"),
    "idle p99 µs": ("idle", "p99_us"),
}
MISSING: Final = "-"


def figures_table(run: PeerRun, candidates: Sequence[Candidate], columns: Mapping[str, tuple[str, str]]) -> Table:
    """Return a line for each candidate with its median and its range."""
    lines: Table = [["", *columns]]
    for candidate in candidates:
        spreads = [run.figures.spread(row_of(candidate.title, phase), metric) for phase, metric in columns.values()]
        lines.append([candidate.title, *(spread_text(spread) or MISSING for spread in spreads)])
    return lines


def share_table(run: PeerRun, candidates: Sequence[Candidate]) -> Table:
    """Return the figures of each other candidate as multiples of ours, round by round."""
    columns = {**RUNNING, f"{CALLERS} callers /s": ("callers", "rate")}
    lines: Table = [[f"as multiples of {OURS.title}", *columns]]
    for candidate in candidates:
        if candidate is not OURS:
            lines.append([candidate.title, *(_share(run, candidate.title, *column) for column in columns.values())])
    return lines


def _share(run: PeerRun, title: str, phase: str, metric: str) -> str:
    ratio = run.figures.ratio(row_of(title, phase), row_of(OURS.title, phase), metric)
    return spread_text(ratio) or MISSING


def about_table(run: PeerRun, candidates: Sequence[Candidate]) -> Table:
    """Return the version, the results and the outcome of each candidate."""
    lines: Table = [["", "version", "results", "jobs drained", "repeated runs", "outcome"]]
    for candidate in candidates:
        repeated = run.figures.spread(row_of(candidate.title, "drain"), "repeated")
        version = run.versions.get(candidate.title, MISSING)
        outcome = f"FAILED: {run.failures[candidate.title]}" if candidate.title in run.failures else "measured"
        cells = [version, candidate.results, f"{candidate.jobs:,}", _most(repeated), outcome]
        lines.append([candidate.title, *(cell.replace("|", "\\|") for cell in cells)])
    return lines


def _most(spread: MedianAndRange | None) -> str:
    return f"{spread.most:.0f}" if spread else MISSING


def terminal(run: PeerRun, candidates: Sequence[Candidate]) -> str:
    """Return all tables for the terminal."""
    tables = (
        about_table(run, candidates),
        figures_table(run, candidates, ADDING),
        figures_table(run, candidates, RUNNING),
        share_table(run, candidates),
    )
    return "\n\n".join(plain(table) for table in tables)


def page(run: PeerRun, candidates: Sequence[Candidate], rounds: int, about: Mapping[str, str]) -> str:
    """Return the page."""
    facts = "\n".join(f"- {name}: {value}" for name, value in about.items())
    methods = "\n".join(f"- **{candidate.title}**: {candidate.method}" for candidate in candidates)
    return f"""# Peers

Written by `make bench-peers`. Each queue comes from the package index and runs in a separate environment, with uvloop
and hiredis. All of them use the same Redis server over TCP with its default settings, except that it writes no
snapshots. The figures are medians of {rounds} rounds, with the range in brackets. The queues take turns, and every
second round runs backwards. A dash means that the queue has no such function or was not measured.

{facts}

{markdown(about_table(run, candidates))}

## Running jobs

{markdown(figures_table(run, candidates, RUNNING))}

## Adding jobs

{markdown(figures_table(run, candidates, ADDING))}

## Compared with this library

A rate below 1 is slower than this library. A time above 1 is longer.

{markdown(share_table(run, candidates))}

## Method

- The handler is a coroutine function that does nothing. The payload is a number and two short texts.
- *drain*: one worker process with {CONCURRENCY} slots empties a full queue. The rate counts from the first start of a
  handler to the last one. The processor times include the second after it, in which the last outcomes are reported.
- *idle*: the time from the call of `add` in one process to the handler in another one, for {IDLE_JOBS - WARM_UP} jobs
  that are added {PAUSE * 1000:.0f} ms apart.
- *repeated runs*: runs of jobs that had run already.
- A phase without a result after {PHASE_SECONDS:.0f} s counts as failed. The queue is then left out of later rounds.

{methods}
"""
