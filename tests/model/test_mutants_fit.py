"""The text of each defect occurs in the Lua exactly once, so that no change of the Lua disables a defect."""

from __future__ import annotations

import pytest

from glidemq_async.functions import loader
from tests.crash.limit_stress import DEFECTS
from tests.model.mutant_lists import DAILY, RARE
from tests.model.mutants import MUTANTS
from tests.model.run_mutants import DEFECTS_OF_RUNS
from tests.model.running import library


@pytest.mark.parametrize("name", MUTANTS | DEFECTS_OF_RUNS)
def test_the_text_of_a_mutant_occurs_in_the_lua_once(name: str) -> None:
    old, new = (MUTANTS | DEFECTS_OF_RUNS)[name]
    assert old != new
    assert library().count(old) == 1, old


@pytest.mark.parametrize("name", DEFECTS)
def test_the_text_of_a_defect_occurs_in_the_lua_once(name: str) -> None:
    defect = DEFECTS[name]
    assert defect.old != defect.new
    assert loader.source(testing=True).count(defect.old) == 1, defect.old


def test_each_slow_mutant_is_a_mutant() -> None:
    assert MUTANTS.keys() >= RARE | DAILY
    assert not RARE & DAILY
