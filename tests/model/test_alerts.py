"""Random calls to the functions of alerts and to a model of them in plain Python agree."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Final

import pytest

from glidemq_async.functions import loader
from glidemq_async.functions.callers import Functions
from glidemq_async.storage import MemoryStorage
from glidemq_async.stored.names import QueueKeys
from tests.model.alert_model import AlertDriver
from tests.model.alert_mutants import MUTANTS_OF_ALERTS
from tests.support.clocked_queue import timed

STEPS: Final = 300
DAILY: Final = (
    "an episode opens before its time",
    "a condition that returns does not stop the close",
    "two processes have the lease",
    "the episodes of a removed rule stay open",
)
"""Mutants that the first seed detects within a second. The nightly run tries all that the model can detect."""
UNSEEN: Final = ("the status of a notification is lost",)
"""Mutants of a function that the model does not call."""


async def agree(seeds: Iterable[int]) -> None:
    """Compare the functions with the model."""
    for seed in seeds:
        async with MemoryStorage(testing=True) as opened:
            place = timed(opened, f"q-{uuid.uuid4().hex[:12]}")
            async with place.queue:
                functions = Functions(opened, QueueKeys("glide", place.queue.name).base)
                start = await functions.reading.now()
                await AlertDriver(place, functions.alerts, start, seed).run(STEPS)


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 30))])
async def test_the_functions_agree_with_the_model(seed: int) -> None:
    await agree([seed])


@pytest.mark.parametrize(
    "title",
    [
        title if title in DAILY else pytest.param(title, marks=pytest.mark.slow)
        for title in MUTANTS_OF_ALERTS
        if title not in UNSEEN
    ],
)
async def test_the_model_detects_the_defect(title: str, with_library: Callable[[str], None]) -> None:
    old, changed = MUTANTS_OF_ALERTS[title]
    with_library(loader.source(testing=True).replace(old, changed))
    with pytest.raises((AssertionError, ValueError)):
        await agree(range(1, 6))
