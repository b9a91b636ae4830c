from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from glidemq_async.functions import loader
from glidemq_async.storage.redis.library import shipped
from tests.model.driver import Driver
from tests.model.driver import driver as start


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with start() as running:
        yield running


@pytest.fixture
def with_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Let storages of this test load another text of the library."""

    def use(text: str) -> None:
        monkeypatch.setattr(loader, "source", lambda *, testing=False: text)
        shipped.cache_clear()

    yield use
    shipped.cache_clear()
