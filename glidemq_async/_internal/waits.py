"""Helpers to wait for one of several events, or for several coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def first_of(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines concurrently. The first failure cancels the others and is raised after they have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
    else:
        return
    raise first
