"""Runs one crash scenario and prints its figures as JSON, or runs all of them and writes the report.

`python -m tests.crash stress --jobs=500 --kills=30`

`GLIDEMQ_CRASH_SCALE=20 python -m tests.crash report docs/reports/crash.md`
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
from pathlib import Path
from typing import Any, cast

from tests.crash.report import write
from tests.crash.scenarios import RUNNERS


def main() -> None:
    """Parse the command line and run the scenario or the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    asked = parser.add_subparsers(dest="scenario", required=True)
    asked.add_parser("report", help="run all scenarios and write the report").add_argument("path", type=Path)
    for name, (default, _) in RUNNERS.items():
        one = asked.add_parser(name)
        one.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
        for option, value in dataclasses.asdict(default).items():
            one.add_argument(f"--{option}", type=json.loads, default=json.dumps(value))
    given = vars(parser.parse_args())
    name = given.pop("scenario")
    if name == "report":
        sys.exit(write(given["path"]))
    default, run = RUNNERS[name]
    outcome = run(seed=given.pop("seed"), size=dataclasses.replace(default, **given))
    print(outcome.line, file=sys.stderr)
    print(json.dumps(dataclasses.asdict(cast("Any", outcome))))


if __name__ == "__main__":
    main()
