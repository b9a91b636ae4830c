"""`python -m benchmarks.peers`: install the peers, measure them, and write docs/reports/peers.md."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import readme, report, venvs
from benchmarks.peers.catalogue import candidates
from benchmarks.peers.page import PAGE, page, terminal
from benchmarks.peers.runner import PeerRun, install_all, measure_all, newest_python
from benchmarks.server import tcp_server


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Measure other queues.")
    parser.add_argument("--only", metavar="NAME", action="append", help="measure only this peer; writes no page")
    parser.add_argument("--rounds", type=int, default=3, help="the number of rounds (3)")
    parser.add_argument("--jobs", type=int, help="the number of jobs to drain (5,000, or 20,000 for the fast ones)")
    parser.add_argument("--python", metavar="PATH", help="the interpreter of the environments (the newest one)")
    parser.add_argument("--installed", action="store_true", help="use the environments as they are")
    parser.add_argument("--output", type=Path, help="the page to write (docs/reports/peers.md)")
    return parser.parse_args(given)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(given: Sequence[str] | None = None) -> int:
    """Run the measurements; return the exit status. A peer that fails is reported and does not change the status."""
    asked = _arguments(given)
    binary = shutil.which("redis-server")
    if binary is None:
        _say("!!! the peers were NOT measured: there is no redis-server on the PATH")
        return 2
    try:
        chosen = [replace(each, jobs=asked.jobs or each.jobs) for each in candidates(asked.only)]
    except ValueError as error:
        _say(f"!!! the peers were NOT measured: {error}")
        return 2
    run, python = PeerRun(), asked.python or newest_python()
    install_all(run, chosen, python, _say, build=not asked.installed)
    about = report.surroundings(report.load(), f"{report.server_version(binary)}, TCP")
    about |= {"Python": venvs.version_of(python)}
    about.pop("packages")
    with tcp_server(binary) as url:
        asyncio.run(measure_all(run, chosen, asked.rounds, url, _say))
    about["load afterwards"] = f"{report.load():.1f}"
    print(terminal(run, chosen))
    output: Path | None = asked.output or (None if asked.only or asked.jobs else PAGE)
    if output is not None:
        output.write_text(page(run, chosen, asked.rounds, about), encoding="utf-8")
    if output == PAGE:
        readme.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
