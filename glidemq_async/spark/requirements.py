"""Checks that pyspark, pyarrow and Java are installed."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

NEEDED: Final = ("pyspark", "pyarrow")


def require_pyspark() -> None:
    """Raise ImportError with the command to install pyspark and pyarrow, if one of them is missing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"glidemq_async.spark needs {' and '.join(missing)}, which cannot be found here; run: "
            "pip install 'glidemq-async[spark]' (and install Java 17 or newer for Spark itself)"
        )


def require_java() -> None:
    """Raise FileNotFoundError if the `java` that Spark would start does not exist.

    The version is not checked, because that takes as long as starting a JVM.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(Path(home, "bin", "java") if home else "java")
    if found is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "the PATH has no java, and JAVA_HOME is not set"
        raise FileNotFoundError(f"Spark needs Java 17 or newer: {where}; install a JRE")


def spark_version() -> tuple[int, int]:
    """Return the major and minor version of the installed pyspark."""
    import pyspark

    major, minor = pyspark.__version__.split(".")[:2]
    return int(major), int(minor)
