"""Marks for tests that need newer versions of Spark."""

from __future__ import annotations

from typing import Final

import pytest

from glidemq_async.spark.read.options import ADMISSION, PUSHDOWN
from glidemq_async.spark.requirements import spark_version


def needs(version: tuple[int, int]) -> pytest.MarkDecorator:
    """Skip a test with older versions of Spark."""
    wanted, found = (".".join(map(str, one)) for one in (version, spark_version()))
    return pytest.mark.skipif(spark_version() < version, reason=f"this needs Spark {wanted}, found {found}")


needs_admission: Final = needs(ADMISSION)
needs_pushdown: Final = needs(PUSHDOWN)
