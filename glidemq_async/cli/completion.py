"""Completion of queue names in a shell."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glidemq_async.cli.options import CommandTarget, target_of

SECONDS: float = 2.0
"""Maximum time for suggestions. A shell that waits longer is worse than one without them."""


def complete_queue(typed: Mapping[str, Any], incomplete: str) -> list[str]:
    """Return the names of the queues of the target that begin with a text, none without a server."""
    try:
        names = asyncio.run(_names(typed))
    # A shell shows whatever this prints in the middle of the line that the user types, so every error is no suggestion.
    except Exception:  # noqa: BLE001
        return []
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


async def _names(typed: Mapping[str, Any]) -> list[str]:
    from glidemq_async.cli import targets

    # During completion, options without a typed value may be missing.
    target: CommandTarget = target_of(
        typed.get("url"), typed.get("prefix"), typed.get("app"), typed.get("app_dir") or Path()
    )
    async with asyncio.timeout(SECONDS), targets.open_store(target) as store:
        return await targets.queue_names(store.storage, store.prefix)
