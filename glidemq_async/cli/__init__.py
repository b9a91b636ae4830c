"""The `glidemq` command. Only the entry point is here, so that it starts without the extra `cli` too.

app.py registers the commands; each group of commands is a separate module or package.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

from glidemq_async.cli.early_stop import is_worker, stop_early

NEEDED: Final = ("typer", "rich")


def main() -> None:
    """Run the command line. Exits with 2 and names the package to install if the extra `cli` is missing."""
    if is_worker(sys.argv[1:]):
        stop_early()
    for name in NEEDED:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            sys.stderr.write(
                f"glidemq needs typer and rich, but {name} is not installed; run pip install 'glidemq-async[cli]'\n"
            )
            sys.exit(2)
    from glidemq_async.cli.app import run

    run()
