"""`doctor`: check that the driver, Spark's Python workers and the server fit together."""

# pyspark's own annotations are incomplete, and pyarrow has none.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from glidemq_async.errors import GlideMQError
from glidemq_async.spark.connection import Connection, run_alone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DoctorCheck", "DoctorReport", "doctor"]


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check. `problem` contains the remedy, or "" if the check succeeded."""

    what: str
    found: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The result of `doctor`."""

    checks: tuple[DoctorCheck, ...]

    @property
    def ok(self) -> bool:
        """True if no check found a problem."""
        return not any(check.problem for check in self.checks)

    def __str__(self) -> str:
        return "\n".join(
            f"{'!!' if check.problem else 'ok'} {check.what}: {check.found}{check.problem and f' - {check.problem}'}"
            for check in self.checks
        )


def doctor(spark: SparkSession, url: str | None = None, tasks: int = 4) -> DoctorReport:
    """Compare the driver's Python and packages with the Python and packages of `tasks` tasks, and reach the
    server from both.

    Runs a small Spark job. Without `url` the server is not checked. If no task can run, Spark's error is raised.
    """
    ours = _environment(url)
    checks = [DoctorCheck(f"{name} on the driver", ours[name]) for name in ("python", "pyspark", "pyarrow", "pandas")]
    unchecked = DoctorCheck("server", "not checked; pass url= to check it")
    checks.append(_server("the driver", ours["server"]) if url else unchecked)
    # One row per task, so that Spark runs the function in several Python workers, if possible on several hosts.
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(_inspecting(url), "findings map<string, string>").collect()
    # Tasks with equal findings are reported once. The host is one of the findings, so each host appears.
    for theirs in {tuple(sorted(row[0].items())): row[0] for row in rows}.values():
        where = f"a task on {theirs['host']}"
        checks += _compare(ours, theirs, where)
        if url:
            checks.append(_server(where, theirs["server"]))
    return DoctorReport(tuple(checks))


def _compare(ours: Mapping[str, str], theirs: Mapping[str, str], where: str) -> Iterator[DoctorCheck]:
    """Compare the packages of a task with the packages of the driver."""
    for name in ("python", "pyspark", "glidemq-async"):
        same = theirs[name] == ours[name]
        problem = "" if same else f"the driver has {ours[name]}; set PYSPARK_PYTHON to the same environment"
        yield DoctorCheck(f"{name} of {where}", theirs[name], problem)
    missing = "" if theirs["format"] == "found" else "install glidemq-async for the Python of the workers"
    yield DoctorCheck(f"format glidemq of {where}", theirs["format"], missing)


def _server(where: str, found: str) -> DoctorCheck:
    return DoctorCheck(f"server from {where}", found, "" if found.startswith("reached") else "see the error message")


def _inspecting(url: str | None) -> Any:
    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _ in batches:
            pass
        kind = pa.map_(pa.string(), pa.string())
        yield pa.record_batch([pa.array([list(_environment(url).items())], kind)], names=["findings"])

    return look


def _environment(url: str | None) -> dict[str, str]:
    """Return the versions of this process, and the result of a connection to the server."""
    import platform

    names = ("pyspark", "pyarrow", "pandas", "glidemq-async")
    found = {"python": sys.version.split()[0], "host": platform.node(), **{name: _version(name) for name in names}}
    found["format"] = "found" if importlib.util.find_spec("pyspark_glidemq") else "not found"
    found["server"] = _connect(url) if url else ""
    return found


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _connect(url: str) -> str:
    try:
        reached = run_alone(url, _reached_url)
    except (GlideMQError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return f"reached {reached}"


async def _reached_url(connection: Connection) -> str:
    """Return the URL. Connecting has already checked the server's version and loaded the functions."""
    return connection.storage.url
