"""`python -m glidemq_async.functions`: record the current text as the release of its version."""

from __future__ import annotations

import json
from pathlib import Path

from glidemq_async.functions import loader


def main() -> None:
    """Add version and fingerprint to `released.json`; refuse to change a released version."""
    # A released text must never change: a loader keeps the text that a server already has if the version is the same,
    # so a changed text would not reach the servers.
    known, mark = loader.released(), loader.fingerprint(loader.source())
    if known.get(loader.VERSION, mark) != mark:
        raise SystemExit(
            f"version {loader.VERSION} of the functions was released with a different text; raise VERSION in "
            "functions/loader.py"
        )
    path = Path(__file__).with_name("released.json")
    path.write_text(json.dumps({**known, loader.VERSION: mark}, indent=2) + "\n", encoding="utf-8")
    print(f"functions {loader.VERSION}: {mark}")  # noqa: T201


if __name__ == "__main__":
    main()
