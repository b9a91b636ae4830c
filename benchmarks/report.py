"""The figures as text: one table for the terminal, and the page docs/reports/bench.md."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from glidemq_async.storage.embedded.binary import find_server

from . import depth, kinds
from .call_times import MEASURED
from .figures import MeasuredRows
from .slow_log import LONGEST, LONGEST_COMMAND, NOTED
from .tables import Table, markdown, number, plain, spread_text
from .targets import BoundCheck, judge
from .waiting import DELAY
from .waiting import IDLE_KINDS as IDLES

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
    ("bytes", "bytes/job"),
)
OTHER_TABLES: Final = ("  in ", LONGEST, LONGEST_COMMAND, MEASURED)
"""The prefixes of the rows that the main table leaves out."""
DRAINS: Final = ("drain, concurrency 1", "drain, concurrency 10", "drain, concurrency 100")
RAW_DRAINS: Final = ("raw drain", "raw drain, batched", "raw drain, bare connection")
LIVES: Final = tuple(f"whole life, {kind}" for kind in kinds.LIVES)
IDLE_KINDS: Final = tuple(f"idle, {kind}: add -> handler" for kind in IDLES if kind != "plain")
ADDS: Final = ("add, one by one", "add, 50 callers", "add, bulk")
RAW_ADDS: Final = ("raw add", "raw add, bare connection")


def main_table(figures: MeasuredRows) -> Table:
    """Return a line for each row that has one of the columns."""
    lines: Table = [["", *(title for _, title in COLUMNS)]]
    for row in figures.rows:
        metrics = figures.metrics(row)
        if any(name in metrics for name, _ in COLUMNS) and not row.startswith(
            ("  in ", LONGEST, LONGEST_COMMAND, MEASURED)
        ):
            lines.append([row.replace("  ", "- "), *(spread_text(metrics.get(name)) for name, _ in COLUMNS)])
    return lines


def ratio_table(figures: MeasuredRows, rows: Sequence[str], yardsticks: Sequence[str]) -> Table:
    """Return rates as shares of the rates of the bare loops."""
    lines: Table = [["jobs/s as a share of", *yardsticks]]
    lines += [[row, *(spread_text(figures.ratio(row, to, "rate")) for to in yardsticks)] for row in rows]
    return lines


def kinds_table(figures: MeasuredRows) -> Table:
    """Return the cost of each kind of job relative to a plain job."""
    metrics = {"server CPU": "server_us", "server commands": "command_us", "p50": "p50_us"}
    lines: Table = [["relative to a plain job", *metrics]]
    pairs = [(row, "whole life") for row in LIVES] + [(row, "idle, plain: add -> handler") for row in IDLE_KINDS]
    pairs.append(("delayed: due -> handler", "idle: add -> handler"))
    lines += [[row, *(spread_text(figures.ratio(row, to, name)) for name in metrics.values())] for row, to in pairs]
    return lines


def inner_table(figures: MeasuredRows) -> Table:
    """Return the functions' time by command, and the rest (Lua and the call itself)."""
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


def failure_lines(figures: MeasuredRows) -> str:
    """Return a list of the samples that failed, or ""."""
    return "".join(f"- FAILED {failure}\n" for failure in figures.failures)


def longest_table(figures: MeasuredRows) -> Table:
    """Return the longest call of each function, and of the commands of the bare loop, in all scenarios and rounds."""
    longest: dict[str, tuple[float, str]] = {}
    for row in figures.rows:
        if row.startswith((LONGEST, LONGEST_COMMAND)):
            function, _, scenario = row.removeprefix(LONGEST).removeprefix(LONGEST_COMMAND).partition(", ")
            most = figures.metrics(row)["most_us"].most
            longest[function] = max(longest.get(function, (0.0, "")), (most, scenario))
    lines: Table = [[f"longest call, if above {number(NOTED)} µs", "µs", "scenario"]]
    ordered = sorted(longest.items(), key=lambda item: item[1], reverse=True)
    return lines + [[function, number(most), scenario] for function, (most, scenario) in ordered]


def processor_table(figures: MeasuredRows) -> Table:
    """Return the longest measured call of each row, its processor time, and the longest processor time of any call."""
    lines: Table = [["function", "scenario", "longest call, µs", "its processor time", "most processor time of a call"]]
    for row in figures.rows:
        if row.startswith(MEASURED):
            function, _, scenario = row.removeprefix(MEASURED).partition(", ")
            metrics = figures.metrics(row)
            longest = figures.at_most(row, "wall_us")
            most = metrics["most_processor_us"].most
            lines.append([function, scenario, *map(number, (longest["wall_us"], longest["processor_us"], most))])
    return lines


def target_table(verdicts: Sequence[BoundCheck]) -> Table:
    """Return a line per target."""
    lines: Table = [["target", "wanted", "found", ""]]
    for verdict in verdicts:
        target = verdict.target
        found = f"{spread_text(verdict.found)} {target.unit}" if verdict.found else "not measured"
        wanted = f"{target.bound} {number(target.value)} {target.unit}"
        lines.append([target.what, wanted, found, "met" if verdict.met else "MISSED"])
    return lines


def surroundings(load_before: float, server: str = "") -> dict[str, str]:
    """Return the date and the environment of the run, without the name of the machine."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "processor": f"{_processor()}, {_cores()} cores",
        "load": f"{load_before:.1f} before the first round (above {_cores() / 2:g}, other programs were running)",
        "pace": f"{pace()} (60 ms on the machine for which the targets were set)",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "server": server or f"{server_version(find_server())}, unix socket, stream-node-max-entries 10",
        "packages": ", ".join(f"{name} {version(name)}" for name in ("redis", "hiredis", "uvloop", "msgpack")),
    }


def pace() -> str:
    """Return the present speed of the processor. A full cloud host slows it, and all times grow with it."""
    start, total = time.process_time(), 0
    for added in range(1_000_000):
        total += added
    return f"a million additions in Python took {(time.process_time() - start) * 1000:.0f} ms"


def load() -> float:
    """Return how many processes wanted to run in the last minute, or 0 where the system does not report it."""
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


def server_version(binary: str) -> str:
    """Return the product and the version of a server."""
    text = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    product = "Valkey" if "valkey" in text.lower() else "Redis"
    return f"{product} {text.partition('v=')[2].split()[0]}"


def _commit() -> str:
    """Return the measured commit. The pages are left out, because each benchmark changes them for the next one."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", ":!README.md")
        return git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def terminal(figures: MeasuredRows) -> str:
    """Return all tables for the terminal."""
    parts = [
        main_table(figures),
        ratio_table(figures, DRAINS, RAW_DRAINS),
        ratio_table(figures, ADDS, RAW_ADDS),
        kinds_table(figures),
        depth.depth_table(figures),
        depth.lines_table(figures),
        inner_table(figures),
        target_table(judge(figures)),
    ]
    return "\n\n".join(plain(part) for part in parts if any(any(line[1:]) for line in part[1:]))


def page(figures: MeasuredRows, rounds: int, about: Mapping[str, str]) -> str:
    """Return all tables as a page; `about` is the result of `surroundings`."""
    facts = "\n".join(f"- {name}: {value}" for name, value in about.items())
    return f"""# Benchmark

Written by `make bench`. The figures are medians of {rounds} rounds, with the range in brackets. Scenarios take turns
within a round, and every sample runs in a separate process. Ratios are computed for each round.

{facts}
{failure_lines(figures)}
{markdown(main_table(figures))}

- *client CPU* is the processor time of the measured process. Where a queue is drained, this is the worker alone.
- *server commands* is the server's time in the client's commands (INFO commandstats). *server CPU* is the processor
  time of the whole server process, including network and parsing.
- *whole life*: jobs are added by 100 callers, then claimed and completed at concurrency 100, with events and results.
- *raw*: the usual loop with redis-py: XADD in pipelines of 100; XREADGROUP COUNT 100 and a pipeline of one XACK per
  job. *batched*: one XACK and one XDEL per 100. *bare connection*: the same over the library's own connection class,
  which parses nothing. These loops store no record, event or result, and cannot delay, retry or fence a job.
- *naive*: a function library that runs separate commands for each job of a batch of 100.
- *idle: add -> handler*: from the call of `add` in one process to the first line of the handler in another, on an
  idle queue. A round trip is an empty function call; these calls alternate with the adds.

## Compared with the bare loop

{markdown(ratio_table(figures, DRAINS, RAW_DRAINS))}

{markdown(ratio_table(figures, ADDS, RAW_ADDS))}

## The kinds of jobs

{markdown(kinds_table(figures))}

- *many keys*: {kinds.MANY_KEYS:,} keys; *few keys*: {kinds.FEW_KEYS} keys, as many as jobs run concurrently. The limits
  of keys are so high that they never delay a job. The rows measure the cost of checking them.
- *delayed*: the time from the due time to the start, for jobs that were added {DELAY:g} s or more before it.

## Depth

{depth.text(figures)}
- *revoke*, *change_priority*, *remove*: calls on single jobs in all parts of the deep queue. The figures are the
  server's time per call, from its slow log. During the longest call, the server served no other client.

## Where the server's time goes (whole life)

{markdown(inner_table(figures))}

## Targets

{markdown(target_table(judge(figures)))}
"""
