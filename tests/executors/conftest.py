"""The fixture of the process that runs attacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.executors.attack_runner import AttackRunner


@pytest.fixture(scope="module")
def attacks() -> Iterator[AttackRunner]:
    from tests.executors.attack_runner import AttackRunner

    opened = AttackRunner()
    yield opened
    opened.close()
