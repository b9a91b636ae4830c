"""The `glidemq` command. Only the entry point lives here, so that it starts without the extra `cli` too.

app.py puts the commands together; each group of commands is a module or package of its own.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

NEEDED: Final = ("typer", "rich")


def main() -> None:
    """Run the command line; exits 2 and says what to install when the extra `cli` is missing."""
    for name in NEEDED:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            sys.stderr.write(f"glidemq needs typer and rich, found no {name}: pip install 'glidemq-async[cli]'\n")
            sys.exit(2)
    from glidemq_async.cli.app import run

    run()
