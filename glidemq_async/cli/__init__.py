"""The `glidemq` command. Only the entry point lives here, so that it starts without the extra `cli` too.

app.py puts the commands together; each group of commands is a module or package of its own.
"""

from __future__ import annotations

import sys
from typing import Final

NEEDED: Final = frozenset({"typer", "rich"})


def main() -> None:
    """Run the command line; exits 2 and says what to install when the extra `cli` is missing."""
    try:
        from glidemq_async.cli.app import run
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in NEEDED:
            raise
        sys.stderr.write(f"glidemq needs typer and rich, found no {missing}: pip install 'glidemq-async[cli]'\n")
        sys.exit(2)
    run()
