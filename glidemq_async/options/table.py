"""The table of job options: checks, stored forms, flags of the command line, Spark columns and documentation.

The command line imports this module to build its flags, so it imports no serializer and no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from glidemq_async.durations import from_ms, instant_to_ms
from glidemq_async.functions.calling import Wait
from glidemq_async.options import validation as checks
from glidemq_async.options.backoff import Backoff
from glidemq_async.options.deduplication import Deduplication
from glidemq_async.options.retention import KeepJobs, checked_keep
from glidemq_async.options.stored_values import (
    backoff_form,
    deduplication_form,
    keep_form,
    read_backoff,
    read_deduplication,
    read_keep,
)

__all__ = ["JOB_OPTIONS", "WHOLE_COST", "Flag", "JobOption"]

WHOLE_COST: Final = 1000
"""One token, in thousandths."""


class Flag(NamedTuple):
    """An option as a flag of a `glidemq` command."""

    help: str
    kind: Any
    """The type that typer reads: int, float, str, bool, list[str] or a Literal."""
    short: str | None = None
    least: int | None = None
    most: int | None = None
    name: str | None = None
    """The name of the flag if it differs from the option's."""
    metavar: str | None = None


# A short name (`stored`) and a sent name (`sent`) are part of the stored data: records keep them for as long as
# their jobs exist, and processes of different versions read each other's jobs. A short name therefore never changes
# its meaning, and the short name of a removed option is not used again. An unknown one is ignored when it is read
# (`read_options`), so an older process can run jobs with newer options.
class JobOption(NamedTuple):
    """One job option."""

    check: checks.Check
    """Validates and normalizes a value."""
    help: str
    """The meaning in one sentence, for the table of options in docs/queues.md."""
    default: object = None
    sent: str = ""
    """Its name in the part of an add that functions/add.lua reads; "" for an option that the server does not need."""
    stored: str = ""
    """Its short name in the stored options; "" if the record has it in another field."""
    pack: Callable[[Any], object] = lambda value: value
    """Turns a value into its sent and stored form."""
    unpack: Callable[[Any], object] = lambda value: value
    """Turns the stored form into a value."""
    from_json: Callable[[Any], object] = lambda value: value
    """Turns a value of a JSON text into a value that `check` accepts."""
    column: str = ""
    """Its Spark type if a row of a DataFrame can have it as a column; "" if not."""
    flag: Flag | None = None
    """Its flag of `glidemq add`."""


def _to_ms(seconds: float) -> int:
    return round(seconds * 1000)


def _from_ms(milliseconds: int) -> float:
    return milliseconds / 1000


def _to_thousandths(cost: float) -> int:
    return round(cost * WHOLE_COST)


def _from_thousandths(cost: int) -> float:
    return cost / WHOLE_COST


def _instant_to_ms(instant: datetime) -> int:
    return instant_to_ms("at", instant)


def _deduplication_from_json(value: Any) -> object:
    return Deduplication(**cast("dict[str, Any]", value))


def _instant_from_json(value: Any) -> object:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _backoff_from_json(value: Any) -> object:
    if not isinstance(value, dict):
        return value
    given = {**cast("dict[str, Any]", value)}
    kind = given.pop("kind", None)
    if kind == "fixed":
        return Backoff.fixed(**given)
    if kind == "exponential":
        return Backoff.exponential(**given)
    if kind == "custom":
        return Backoff.custom(**given)
    raise ValueError(f"the kind of a backoff must be fixed, exponential or custom, got {kind!r}")


def _keep_from_json(value: Any) -> object:
    return KeepJobs(**cast("dict[str, Any]", value)) if isinstance(value, dict) else value


def _seconds(check: checks.Check, meaning: str, stored: str, flag: Flag | None, **more: Any) -> JobOption:
    """Return an option that is a duration."""
    return JobOption(check, meaning, stored=stored, pack=_to_ms, unpack=_from_ms, flag=flag, **more)


def _retention(stored: str, state: str, limits: str) -> JobOption:
    return JobOption(
        checked_keep,
        f"retention of {state} jobs: a bool for all or none, a count, or `KeepJobs` ({limits})",
        stored=stored,
        pack=keep_form,
        unpack=read_keep,
        from_json=_keep_from_json,
    )


#: The options in the order of JobOptions.
JOB_OPTIONS: Final[Mapping[str, JobOption]] = {
    "job_id": JobOption(
        checks.optional_id,
        "an id that you choose; adding a job twice with the same id creates only one job",
        flag=Flag("Id of the job. Adding it twice creates only one job.", str, name="--id"),
    ),
    "delay": _seconds(
        checks.optional_seconds,
        "seconds until the earliest start",
        "w",
        Flag("Seconds until the earliest start.", float, least=0),
        sent="delay",
        column="number",
    ),
    "at": JobOption(
        checks.optional_instant,
        "the earliest start, as an instant with a time zone; cannot be combined with `delay`",
        sent="at",
        stored="i",
        pack=_instant_to_ms,
        unpack=from_ms,
        from_json=_instant_from_json,
        column="timestamp",
        flag=Flag("Earliest start, in ISO 8601 with a time zone.", str),
    ),
    "priority": JobOption(
        checks.priority,
        "0 to 2**21; jobs with lower numbers start first",
        default=0,
        sent="priority",
        column="number",
        flag=Flag("Priority. 0 is the most urgent.", int, least=0),
    ),
    "lifo": JobOption(
        checks.boolean,
        "the newest waiting job with `lifo` starts before older ones",
        default=False,
        sent="lifo",
        column="boolean",
        flag=Flag("Start the newest of these jobs first.", bool),
    ),
    "key": JobOption(
        checks.optional_id,
        "the ordering key; jobs with the same key start in order, by default one at a time",
        sent="key",
        column="string",
        flag=Flag("Ordering key.", str),
    ),
    "cost": JobOption(
        checks.positive_real,
        "the number of tokens that the job takes from the token bucket of its key",
        default=1.0,
        sent="cost",
        pack=_to_thousandths,
        unpack=_from_thousandths,
        column="number",
        flag=Flag("Number of tokens that the job takes from the token bucket of its key.", float),
    ),
    "deduplication": JobOption(
        checks.deduplication,
        "a `Deduplication`: several adds with the same deduplication id create one job",
        sent="dedup",
        stored="d",
        pack=deduplication_form,
        unpack=read_deduplication,
        from_json=_deduplication_from_json,
    ),
    "attempts": JobOption(
        checks.positive_number,
        "the maximum number of attempts",
        default=1,
        stored="a",
        column="number",
        flag=Flag("Maximum number of attempts.", int, least=1),
    ),
    "backoff": JobOption(
        checks.optional_backoff,
        "the wait between two attempts, a `Backoff` or seconds",
        stored="b",
        pack=backoff_form,
        unpack=read_backoff,
        from_json=_backoff_from_json,
        column="number",
        flag=Flag("Seconds between two attempts.", float, least=0),
    ),
    "timeout": _seconds(
        checks.optional_positive_seconds,
        "seconds that one run may take",
        "t",
        Flag("Seconds that one run may take.", float),
        column="number",
    ),
    "ttl": _seconds(
        checks.optional_positive_seconds,
        "seconds after which a job that has not started expires",
        "x",
        Flag("Seconds after which the job expires if it has not started.", float),
        sent="ttl",
        column="number",
    ),
    "lock_duration": _seconds(
        checks.optional_lease,
        "the lease of a run in seconds, from 1 s to 24 h (default: the worker's `lock_duration`)",
        "l",
        Flag("Lease of a run in seconds.", float, least=1),
    ),
    "keep_completed": _retention("c", "completed", "24 hours and 1,000 jobs"),
    "keep_failed": _retention("f", "failed", "30 days and 10,000 jobs"),
    "result_ttl": _seconds(
        checks.optional_positive_seconds,
        "seconds for which the record and the result are kept after the end; overrides the retention",
        "r",
        Flag("Seconds for which the record and the result are kept after the end.", float),
        column="number",
    ),
    "headers": JobOption(
        checks.headers,
        "short texts that are sent along with the job",
        default=MappingProxyType[str, str]({}),
        stored="h",
        pack=dict,
        column="map",
        flag=Flag("Header of the job. Can be repeated.", list[str], name="--header", metavar="NAME=TEXT"),
    ),
    "durability": JobOption(
        checks.durability,
        '"replicated" waits for a replica, "fsync" waits for the disk',
        default="default",
        stored="u",
        flag=Flag("Confirmation that the command waits for.", Wait),
    ),
}
