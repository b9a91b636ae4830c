"""Check that the Python of Spark's tasks has this package, on a local master.

Spark runs tasks with the value that PYSPARK_PYTHON had when the session was created, or with the `python3` of the PATH.
If a program runs in an environment that is not activated, this is another interpreter, and Spark's error names neither.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_interpreter"]

# `find_spec` is fast and does not import the package. A package of another version raises a clear error by itself.
_PROGRAM: Final = "import importlib.util as u; print('found' if u.find_spec('glidemq_async') else 'missing')"
_TIMEOUT: Final = 20.0


def check_interpreter(spark: SparkSession) -> None:
    """Raise ImportError with the setting to use, if the tasks' Python on this machine cannot import this package.

    On a cluster and on Spark Connect the driver cannot know, so nothing is checked. The same holds if Spark sends files
    to its tasks or sets their path, because the package may be among them.
    """
    if not hasattr(spark, "_jsparkSession"):
        return
    context = spark.sparkContext
    sends_files = context.getConf().get("spark.submit.pyFiles") or getattr(context, "_python_includes", None)
    if str(context.master).partition("[")[0] != "local" or sends_files or "PYTHONPATH" in context.environment:
        return
    chosen = str(context.pythonExec)
    # `pythonExec` may be a name or a path. `which` finds the same file that Spark starts, because both use the PATH of
    # this process.
    found = shutil.which(chosen)
    if found is None or _is_ours(found) or not _lacks_package(found):
        return
    raise ImportError(
        f"Spark's tasks run {found} ({chosen!r}), which cannot import glidemq_async, unlike {sys.executable}. "
        'Set os.environ["PYSPARK_PYTHON"] = sys.executable before the session is created, or activate the environment'
    )


def _is_ours(found: str) -> bool:
    # Do not resolve links: the Python of an environment is a link to an interpreter outside of it.
    return Path(found).absolute() == Path(sys.executable).absolute()


@lru_cache
def _lacks_package(python: str) -> bool:
    """Return True if an interpreter reports that the package is missing.

    If it does not answer, Spark reports the error.
    """
    try:
        result = subprocess.run(  # noqa: S603 - Spark runs the same program
            [python, "-c", _PROGRAM], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.stdout.strip() == "missing"
