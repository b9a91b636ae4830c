"""Which Python runs Spark's tasks, looked at where the driver can know: on a local master.

Spark takes PYSPARK_PYTHON as it was when the session began, else `python3` of the PATH. Of a program that runs in an
environment which was not activated that is another interpreter, and what Spark says then names neither.
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

# Looked for and not imported: that is quick, and a package of another version is told by its own errors.
_LOOK: Final = "import importlib.util as u; print('found' if u.find_spec('glidemq_async') else 'missing')"
_LOOK_SECONDS: Final = 20.0


def check_interpreter(spark: SparkSession) -> None:
    """Raise ImportError that says what to set, if the tasks' Python on this machine cannot import this package.

    Nothing is said where the driver cannot know: on a cluster, on Spark Connect, and where Spark hands files to its
    tasks or sets their path: the package may be among them.
    """
    if not hasattr(spark, "_jsparkSession"):
        return
    context = spark.sparkContext
    handed = context.getConf().get("spark.submit.pyFiles") or getattr(context, "_python_includes", None)
    if str(context.master).partition("[")[0] != "local" or handed or "PYTHONPATH" in context.environment:
        return
    chosen = str(context.pythonExec)
    found = shutil.which(chosen)
    if found is None or _is_ours(found) or not _lacks_package(found):
        return
    raise ImportError(
        f"Spark's tasks run {found} ({chosen!r}), which cannot import glidemq_async as {sys.executable} does. "
        'Before the session is made set os.environ["PYSPARK_PYTHON"] = sys.executable, or activate the environment'
    )


def _is_ours(found: str) -> bool:
    # Not resolved: the Python of an environment is a link to one that knows nothing of it.
    return Path(found).absolute() == Path(sys.executable).absolute()


@lru_cache
def _lacks_package(python: str) -> bool:
    """Whether an interpreter says that it does not find the package; what says nothing is left to Spark."""
    try:
        said = subprocess.run(  # noqa: S603 - what Spark runs as well
            [python, "-c", _LOOK], capture_output=True, text=True, timeout=_LOOK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return said.stdout.strip() == "missing"
