"""The report of a crash run: each scenario with its measured figures and its requirement."""

from __future__ import annotations

import os
import platform
import random
import subprocess
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from glidemq_async.functions.loader import VERSION
from glidemq_async.storage.embedded.binary import find_server
from tests.crash.limit_stress import DEFECTS
from tests.crash.limit_stress import Outcome as LimitStressOutcome
from tests.crash.scenarios import (
    DEFECTIVE,
    LIMIT_STRESS,
    POISON,
    RECOVERY,
    RESTARTS,
    SHUTDOWNS,
    STRESS,
    TRIALS,
    UNFENCED,
    Scenario,
)
from tests.crash.size import SCALE

MEASURED: Final[list[Scenario[Any]]] = [STRESS, LIMIT_STRESS, POISON, RESTARTS, SHUTDOWNS, RECOVERY, *TRIALS]


class Row(NamedTuple):
    """One guarantee: its requirement, its measurement, and its faults."""

    guarantee: str
    demanded: str
    measured: str
    faults: list[str]


def render(rows: list[Row], points: dict[str, int]) -> str:
    """Return the report as Markdown."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    lines = [
        "# Crash report",
        "",
        (
            f"Written by `python -m tests.crash report` on {day}: {os.cpu_count()} cores, {platform.system()} "
            f"{platform.release()}, Python {platform.python_version()}, {_first_line(find_server(), '--version')}, "
            f"functions {VERSION}, commit {_first_line('git', 'rev-parse', '--short', 'HEAD')}, "
            f"{SCALE:g} times the size of the run at each push."
        ),
        "",
        "| Guarantee | Demanded | Measured | |",
        "|---|---|---|---|",
    ]
    for row in rows:
        verdict = f"**FAIL**: {'; '.join(row.faults)}" if row.faults else "pass"
        lines.append("| " + " | ".join(map(_cell, (row.guarantee, row.demanded, row.measured, verdict))) + " |")
    lines += ["", "Processes that died at each failpoint of the stress run:", "", "| Failpoint | Deaths |", "|---|---|"]
    lines += [f"| `{point}` | {count:,} |" for point, count in points.items()]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _first_line(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.partition("\n")[0]
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _control(name: str, scenario: Scenario[LimitStressOutcome]) -> Row:
    found = scenario.run(random.SystemRandom().randrange(2**32))
    measured = ", ".join(f"{count:,} {kind}" for kind, count in found.broken.items()) or "0 broken"
    missed = [] if found.broken.get(DEFECTS[name].kind) else ["the defect was not detected"]
    return Row(scenario.guarantee, scenario.demanded, f"{measured}; {found.line}", missed)


def write(path: Path) -> int:
    """Run all scenarios, write the report, and return the exit status: 1 when one failed."""
    rows: list[Row] = []
    points: dict[str, int] = {}
    for scenario in MEASURED:
        outcome = scenario.run(random.SystemRandom().randrange(2**32))
        rows.append(Row(scenario.guarantee, scenario.demanded, outcome.line, outcome.faults()))
        if scenario is STRESS:
            points = outcome.points
    control = UNFENCED.run(random.SystemRandom().randrange(2**32))
    missed = [] if control.broken.get("doubled") else ["the defect was not detected"]
    rows.append(Row(UNFENCED.guarantee, UNFENCED.demanded, control.line, missed))
    rows += [_control(name, scenario) for name, scenario in DEFECTIVE.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(rows, points))
    return int(any(row.faults for row in rows))
