"""The fixture of the process that runs attacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.executors.shooting import Range


@pytest.fixture(scope="module")
def attacks() -> Iterator[Range]:
    from tests.executors.shooting import Range

    opened = Range()
    yield opened
    opened.close()
