"""What the Spark side needs, and what to do where it is missing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

NEEDED: Final = ("pyspark", "pyarrow")


def require_pyspark() -> None:
    """Raise ImportError that names what to install, unless pyspark and pyarrow can be imported."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"glidemq_async.spark needs {' and '.join(missing)}, which cannot be found here: "
            "pip install 'glidemq-async[spark]' (and Java 17 or newer for Spark itself)"
        )


def spark_version() -> tuple[int, int]:
    """Return the major and minor version of the pyspark that is installed."""
    import pyspark

    major, minor = pyspark.__version__.split(".")[:2]
    return int(major), int(minor)
