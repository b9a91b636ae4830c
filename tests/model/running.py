"""Runs the machine: the number of steps, the seed, and the text of the library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from glidemq_async.functions import loader
from glidemq_async.storage.redis.wire import ReplyError
from tests.model.choices import ADD_STEP, SETTLE_STEP, STEP
from tests.model.dead_letters import MOST_MOVED, WALK_STEP
from tests.model.driver import Driver
from tests.model.machine import QueueMachine
from tests.model.posting import MOST_POSTED, RELAY_STEP
from tests.model.suspending import MOST_SIGNALS

STEPS_PER_EXAMPLE = 80
Change = tuple[str, str]
SMALLER_STEPS = (
    ("scheduled", "PROMOTE_STEP", STEP),
    ("signals", "PROMOTE_STEP", STEP),
    ("signals", "MOST", MOST_SIGNALS),
    ("settle", "SIGNALLED_STEP", SETTLE_STEP),
    ("stalled", "STEP", STEP),
    ("stalled", "MOST_STEPS", 1),
    ("claim", "FIRST_STEP", 2),
    ("entries", "SPECIAL_AT_ONCE", 0),
    ("outbox", "STEP", RELAY_STEP),
    ("outbox", "MOST", MOST_POSTED),
    ("inbox", "MOST_MOVED", MOST_MOVED),
    ("replaying", "STEP", WALK_STEP),
    ("cleaning", "FIRST_PIECE, LARGEST_PIECE, MOST", "2, 3, 500"),
    ("budget", "ENOUGH", 10),
    ("budget", "SETTLED, CLAIMED, ADDED", "10, 10, 10"),
    ("add", "STEP, COSTLY_STEP", f"{ADD_STEP}, {ADD_STEP}"),
    ("add", "FIRST_STEP", ADD_STEP),
    ("settle_groups", "STEP, KEYED_STEP, COSTLY_STEP", f"{SETTLE_STEP}, {SETTLE_STEP}, {SETTLE_STEP}"),
)
"""Lua file, a constant of it, and its value in these tests."""


def library(changes: Sequence[Change] = ()) -> str:
    """Return the test build with small steps, so that the tests see several of them, and with these changes."""
    text = _with_small_steps()
    for old, new in changes:
        assert text.count(old) == 1, f"occurs {text.count(old)} times in the Lua instead of once: {old!r}"
        text = text.replace(old, new)
    return text


@cache
def _with_small_steps() -> str:
    text = loader.source(testing=True)
    for file, name, value in SMALLER_STEPS:
        block = _block(text, file)
        smaller, count = re.subn(rf"^( *local) {name} = [\d., ]+$", rf"\1 {name} = {value}", block, flags=re.MULTILINE)
        assert count == 1, f"{file}.lua names {name} {count} times"
        text = text.replace(block, smaller)
    return text


def _block(text: str, file: str) -> str:
    """Return the part of a file in the complete text: from its heading to the next heading."""
    found = re.search(rf"^-- {file}: .*?(?=^do\n-- \w+: |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert found is not None, f"the Lua has no block with the heading {file}"
    return found[0]


def run_machine(driver: Driver, steps: int, number: int, *, shrink: bool = True) -> int:
    """Take about this number of random steps from this seed; return the number of steps. Raises at a difference."""
    machine = _machine(driver)
    _run(machine, steps, number, (Phase.generate, Phase.shrink) if shrink else (Phase.generate,))
    return machine.steps


def has_difference(driver: Driver, steps: int, number: int) -> bool:
    """Return whether about this number of random steps from this seed meet a difference."""
    machine = _machine(driver)
    try:
        _run(machine, steps, number, (Phase.generate,))
    except (AssertionError, ReplyError, RuntimeError):
        # A RuntimeError: the client could not read the reply.
        return True
    except Flaky:
        # Hypothesis repeats the example in which it met an error. The server's choice between equal members depends on
        # the layout of its hash tables, so the repetition may pass. The first error was a difference all the same.
        assert machine.differences, "an example was inconsistent without a difference"
        return True
    return False


def _machine(driver: Driver) -> type[QueueMachine]:
    class Machine(QueueMachine):
        pass

    Machine.driver, Machine.steps, Machine.differences = driver, 0, 0
    return Machine


def _run(machine: type[QueueMachine], steps: int, number: int, phases: tuple[Phase, ...]) -> None:
    run_state_machine_as_test(
        seed(number)(machine),
        settings=settings(
            max_examples=max(1, steps // 70),
            stateful_step_count=STEPS_PER_EXAMPLE,
            deadline=None,
            database=None,
            phases=phases,
            report_multiple_bugs=False,
            print_blob=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
