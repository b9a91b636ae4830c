from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.driver import Driver
from tests.model.driver import driver as start


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with start() as running:
        yield running
