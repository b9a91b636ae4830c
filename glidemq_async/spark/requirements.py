"""What the Spark side needs, and what to do where it is missing."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
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


def require_java() -> None:
    """Raise FileNotFoundError that says what to install, unless there is the java that Spark would start.

    Its version is not asked for: that takes as long as starting it.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(Path(home, "bin", "java") if home else "java")
    if found is None:
        where = f"JAVA_HOME={home} holds no bin/java" if home else "there is no java on the PATH, and no JAVA_HOME"
        raise FileNotFoundError(f"Spark needs Java 17 or newer: {where}; install a JRE")


def spark_version() -> tuple[int, int]:
    """Return the major and minor version of the pyspark that is installed."""
    import pyspark

    major, minor = pyspark.__version__.split(".")[:2]
    return int(major), int(minor)
