"""The rules of failure groups, histories, bulk changes, operations and audit lines hold. Broken ones are noticed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from glidemq_async.functions import loader
from glidemq_async.storage.redis.wire import ReplyError
from tests.model.driver import Driver
from tests.model.operator_mutants import OPERATOR_MUTANTS
from tests.model.operator_scenes import SCENES, SMALLER, Scene


def text_of(changes: Sequence[tuple[str, str]] = ()) -> str:
    """Return the test build with smaller limits and with these changes."""
    text = loader.source(testing=True)
    for old, new in [*changes, *SMALLER.items()]:
        assert text.count(old) == 1, f"occurs {text.count(old)} times in the Lua instead of once: {old!r}"
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def sound(driver: Driver) -> Driver:
    driver.load(text_of())
    return driver


@pytest.mark.parametrize(("part", "number"), [(part, number) for part in SCENES for number in range(len(SCENES[part]))])
def test_a_rule_holds(sound: Driver, part: str, number: int) -> None:
    SCENES[part][number](Scene(sound))


def play(driver: Driver, part: str) -> None:
    """Play the scenes of a part. Raises at the first broken rule."""
    for scene in SCENES[part]:
        scene(Scene(driver))


def each() -> list[object]:
    """Return the mutants with their parts. The nightly run tries all of them, the daily one each third."""
    found = [(part, name) for part in SCENES for name in OPERATOR_MUTANTS[part]]
    return [pytest.param(*one, marks=[pytest.mark.slow] if number % 3 else []) for number, one in enumerate(found)]


@pytest.mark.parametrize(("part", "name"), each())
def test_a_broken_rule_is_noticed(driver: Driver, part: str, name: str) -> None:
    driver.load(text_of([OPERATOR_MUTANTS[part][name]]))
    with pytest.raises((AssertionError, ReplyError, ValueError, KeyError, IndexError, TypeError)):
        play(driver, part)


@pytest.mark.parametrize("part", SCENES)
def test_the_text_of_each_mutant_occurs_in_the_lua_once(part: str) -> None:
    text = text_of()
    wrong = {name: text.count(old) for name, (old, _) in OPERATOR_MUTANTS[part].items() if text.count(old) != 1}
    assert wrong == {}
