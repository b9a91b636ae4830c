"""The figures as text: one table for the terminal, and the page docs/reports/bench.md."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from glidemq_async.storage.binary import find_server

from .figures import Figures, Spread
from .targets import Verdict, judge

ROOT: Final = Path(__file__).parent.parent
COLUMNS: Final = (
    ("rate", "jobs/s"),
    ("client_us", "client CPU µs/job"),
    ("command_us", "server commands µs/job"),
    ("server_us", "server CPU µs/job"),
    ("p50_us", "p50 µs"),
    ("p99_us", "p99 µs"),
    ("most_us", "most µs"),
    ("calls", "calls/job"),
)
DRAINS: Final = ("drain, concurrency 1", "drain, concurrency 10", "drain, concurrency 100")
RAW_DRAINS: Final = ("raw drain", "raw drain, batched", "raw drain, bare connection")
ADDS: Final = ("add, one by one", "add, 50 callers", "add, bulk")
RAW_ADDS: Final = ("raw add", "raw add, bare connection")
Table = list[list[str]]


def number(value: float) -> str:
    """A figure with as many digits as it deserves."""
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread_text(spread: Spread | None) -> str:
    """Median and range."""
    if spread is None:
        return ""
    if spread.least == spread.most:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.least)}..{number(spread.most)})"


def main_table(figures: Figures) -> Table:
    """A line per row that has any of the columns."""
    lines: Table = [["", *(title for _, title in COLUMNS)]]
    for row in figures.rows:
        metrics = figures.metrics(row)
        if any(name in metrics for name, _ in COLUMNS) and not row.startswith("  in "):
            lines.append([row.replace("  ", "- "), *(spread_text(metrics.get(name)) for name, _ in COLUMNS)])
    return lines


def ratio_table(figures: Figures, rows: Sequence[str], yardsticks: Sequence[str]) -> Table:
    """Rates as shares of the bare loops'."""
    lines: Table = [["jobs/s as a share of", *yardsticks]]
    lines += [[row, *(spread_text(figures.ratio(row, to, "rate")) for to in yardsticks)] for row in rows]
    return lines


def inner_table(figures: Figures) -> Table:
    """Where the functions' time goes: their commands, and the rest (Lua, the call itself)."""
    lines: Table = [["function", "total µs/job", "Lua and the rest", "commands µs/job"]]
    for row in [name for name in figures.rows if name.startswith("  in ")]:
        metrics = {name: spread.median for name, spread in figures.metrics(row).items()}
        total = metrics.pop("fcall", 0.0)
        inner = {name: metrics[name] for name in sorted(metrics, key=lambda name: -metrics[name])}
        for outer in ("fcall_ro", "info"):
            inner.pop(outer, None)
        rest = total - sum(inner.values())
        shown = ", ".join(f"{name} {number(value)}" for name, value in inner.items() if value >= 0.05)
        lines.append([row.removeprefix("  in "), number(total), number(rest), shown])
    return lines


def target_table(verdicts: Sequence[Verdict]) -> Table:
    """A line per target."""
    lines: Table = [["target", "wanted", "found", ""]]
    for verdict in verdicts:
        target = verdict.target
        found = f"{spread_text(verdict.found)} {target.unit}" if verdict.found else "not measured"
        wanted = f"{target.bound} {number(target.value)} {target.unit}"
        lines.append([target.what, wanted, found, "met" if verdict.met else "MISSED"])
    return lines


def plain(table: Table) -> str:
    """A table in aligned columns."""
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    return "\n".join([lines[0], "-" * sum(widths), *lines[1:]])


def markdown(table: Table) -> str:
    """A table for a page."""
    head, *lines = ["| " + " | ".join(line) + " |" for line in table]
    return "\n".join([head, "|" + "---|" * len(table[0]), *lines])


def surroundings(load_before: float) -> dict[str, str]:
    """When and on what this was measured; nothing that names the machine."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "processor": f"{_processor()}, {_cores()} cores",
        "load": f"{load_before:.1f} before the first round (above {_cores() / 2:g} means that others worked here)",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "server": _server_version(),
        "packages": ", ".join(f"{name} {version(name)}" for name in ("redis", "hiredis", "uvloop", "msgpack")),
    }


def load() -> float:
    """How many processes wanted to run in the last minute; 0 where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _server_version() -> str:
    text = subprocess.run([find_server(), "--version"], capture_output=True, text=True, check=True).stdout
    product = "Valkey" if "valkey" in text.lower() else "Redis"
    return f"{product} {text.partition('v=')[2].split()[0]}, unix socket, stream-node-max-entries 10"


def _commit() -> str:
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def terminal(figures: Figures) -> str:
    """Everything for the terminal."""
    parts = [
        main_table(figures),
        ratio_table(figures, DRAINS, RAW_DRAINS),
        ratio_table(figures, ADDS, RAW_ADDS),
        inner_table(figures),
        target_table(judge(figures)),
    ]
    return "\n\n".join(plain(part) for part in parts if any(any(line[1:]) for line in part[1:]))


def page(figures: Figures, rounds: int, about: Mapping[str, str]) -> str:
    """Everything as a page; `about` is what `surroundings` said."""
    facts = "\n".join(f"- {name}: {value}" for name, value in about.items())
    return f"""# Benchmark

Written by `make bench`. Medians of {rounds} rounds, in brackets the least and the most. Scenarios take turns within a
round and every sample has a process of its own; ratios are taken round by round.

{facts}

{markdown(main_table(figures))}

- *client CPU* is the processor time of the measured process, the worker's alone where a queue is drained.
- *server commands* is the time the server spent in the client's commands (INFO commandstats); *server CPU* is the
  processor time of the whole server process, network and parsing included.
- *whole life*: added by 100 callers, claimed and completed at concurrency 100, with events and kept results.
- *raw*: what one writes with redis-py: XADD in pipelines of 100; XREADGROUP COUNT 100 and a pipeline of one XACK per
  job. *batched*: one XACK and one XDEL per 100. *bare connection*: the same over the library's own connection class,
  which parses nothing. None keeps a record, an event or a result; none can delay, retry or fence.
- *naive*: a function library that runs every command for each job by itself, in batches of 100.
- *{"idle: add -> handler"}*: from the call of `add` in one process to the first line of the handler in another, on an
  idle queue; a round trip is the empty function call, made in turns with the adds.

## Beside the bare loop

{markdown(ratio_table(figures, DRAINS, RAW_DRAINS))}

{markdown(ratio_table(figures, ADDS, RAW_ADDS))}

## Where the server's time goes (whole life)

{markdown(inner_table(figures))}

## Targets

{markdown(target_table(judge(figures)))}
"""
