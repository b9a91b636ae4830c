"""The worker of an example service in a separate process, which notes every run: `... journal MODULE FILE`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from glidemq_async import Worker
from tests.support.helpers import AnyJob


def handler_of(path: str) -> Callable[[AnyJob], Awaitable[Any]]:
    """The handler of an example."""
    spec = spec_from_file_location("service", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[AnyJob], Awaitable[Any]] = module.ship
    return found


async def main(path: str, journal: str) -> None:
    """Work until a signal comes. Each run writes one line before it can count as ended."""
    ship = handler_of(path)
    noted = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def note(job: AnyJob) -> Any:
        os.write(noted, f"{job.id}\n".encode())
        return await ship(job)

    await Worker[Any, Any]("orders", note, concurrency=100).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
