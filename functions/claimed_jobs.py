"""The jobs of a claim, from the reply of `settleAndClaim` or from entries that the worker has read itself.

Only this module knows how claimed jobs are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast, overload

from typing_extensions import override

_History: TypeAlias = list[bytes | None]
"""The history of a claimed job: None for a field that the record does not have."""

EntryRow: TypeAlias = tuple[bytes, list[bytes]]
"""An entry of a stream: its id, and its fields and values.

A plain job has its name and its data, and may have options.
"""

_FIELDS_OF_A_JOB = 4
_HAS_RECORD = 1
"""The last of these fields of a job with a record. Four more fields of the job follow."""
BYTES_OF_A_TIME: Final = 14
"""The length of the time in the id of an entry: a hyphen and 13 digits of milliseconds."""
NAME_AND_DATA: Final = 2
"""The number of fields of the entry of a plain job without options."""
_SEPARATOR, _SIZE_FOLLOWS = b"\x1f", b"\x1e"
"""The separators of the parts of the text of a compact job, and of its name and the number of bytes of its options."""
_ROUTES = b"lp"
"""The first letters of the routes in the heads of LIFO and prioritized jobs, after the time of creation."""
_KEYED = b"k "
"""The beginning of the head of a keyed job."""


class JobHistory(NamedTuple):
    """The fields that a claim returns for jobs with earlier runs. A keyed job that never ran has only its route."""

    route: bytes | None
    added: bytes | None = None
    failures: int = 0
    stalls: int = 0
    progress: bytes | None = None
    origin: bytes | None = None
    """The origin of a dead letter."""
    hand_over: bytes | None = None
    """The signals and the step that the runs of the job get, see signals.lua."""


class ClaimedJob(NamedTuple):
    """One job of a claim. `entry` is the fencing token of the run."""

    id: str
    entry: str
    fence: int
    name: str
    data: bytes
    opts: bytes
    history: JobHistory | None
    is_plain: bool
    """True for a job without a record, see plain.lua. The worker sends the time at which its run began."""


class EntriesRead(Sequence[ClaimedJob]):
    """The plain jobs of a direct claim, as the entries that the worker has read.

    A worker makes its runs from `rows`. An item of the sequence is made when it is read.
    """

    __slots__ = ("rows",)

    def __init__(self, rows: Sequence[EntryRow]) -> None:
        self.rows = rows

    @override
    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> ClaimedJob: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ClaimedJob]: ...

    @override
    def __getitem__(self, index: int | slice) -> ClaimedJob | Sequence[ClaimedJob]:
        if isinstance(index, slice):
            return [_job_of(row) for row in self.rows[index]]
        return _job_of(self.rows[index])


def plain_job(entry: Any, name: Any, data: Any, opts: Any) -> ClaimedJob:
    """Return one plain job of a claim, whose id is the number of its entry."""
    token = entry.decode()
    return ClaimedJob(
        token[:-BYTES_OF_A_TIME], "p" + token, 1, name.decode(errors="replace"), data, opts or b"", None, is_plain=True
    )


def claimed_jobs(flat: list[Any] | bytes) -> list[ClaimedJob]:
    """Return the jobs of a claim, which are sent as one flat list, or as an empty text if there are none."""
    if not flat or isinstance(flat, bytes):
        return []
    # Calling the class costs twice as much as its __new__, and this runs once per job.
    new = cast("Callable[[type[ClaimedJob], tuple[object, ...]], ClaimedJob]", tuple.__new__)  # pyright: ignore[reportUnknownMemberType]
    kind = ClaimedJob
    values = iter(flat)
    jobs = list[ClaimedJob]()
    for entry, name, data, rest in zip(*[values] * _FIELDS_OF_A_JOB, strict=True):
        token, called = entry.decode(), name.decode(errors="replace")
        if rest != _HAS_RECORD:
            # A plain job: its id is the number of its entry.
            job: tuple[object, ...] = (token[:-BYTES_OF_A_TIME], "p" + token, 1, called, data, rest or b"", None, True)
        else:
            job_id, opts, fence, history = next(values), next(values), next(values), next(values)
            if not token:
                jobs += _compact_jobs(called, job_id.decode().split(" "), history)
                continue
            past = _history(history) if history else None
            job = (job_id.decode(), token, int(fence), called, data or b"", opts or b"", past, False)
        jobs.append(new(kind, job))
    return jobs


def _job_of(row: EntryRow) -> ClaimedJob:
    """Return the plain job of an entry that the worker has read itself."""
    entry, fields = row
    return plain_job(entry, fields[0], fields[1], fields[2] if len(fields) > NAME_AND_DATA else None)


def _history(fields: _History | bytes) -> JobHistory:
    # A claim reads as few fields as the job needs: none for a plain first run, the route for a keyed first run, the
    # time of creation and the route for a prioritized or LIFO one, and all of them after an earlier run. The last one
    # exists only if the job got signals or a step.
    if isinstance(fields, bytes):
        since, _, rest = fields.partition(b" ")
        return JobHistory(rest, since) if since.isdigit() else JobHistory(fields)
    failures, stalls, added, progress, route, origin, *more = fields
    handed = more[0] if more else None
    return JobHistory(route, added, int(failures or 0), int(stalls or 0), progress, origin, handed)


def _compact_jobs(head: str, ids: Iterable[str], texts: Iterable[bytes]) -> list[ClaimedJob]:
    """Return compact jobs that start together, from their texts, see compact.lua.

    Their tokens are `head` and three digits, from 000 on.
    """
    # The same call of __new__ as in `claimed_jobs`.
    new = cast("Callable[[type[ClaimedJob], tuple[object, ...]], ClaimedJob]", tuple.__new__)  # pyright: ignore[reportUnknownMemberType]
    kind = ClaimedJob
    jobs = list[ClaimedJob]()
    for number, (job_id, text) in enumerate(zip(ids, texts, strict=True)):
        start, name, data = text.split(_SEPARATOR, 2)
        opts = b""
        if _SIZE_FOLLOWS in name:
            name, _, size = name.partition(_SIZE_FOLLOWS)
            opts, data = data[: int(size)], data[int(size) :]
        if start.startswith(_KEYED):
            history = JobHistory(start)
        else:
            since, _, route = start.partition(b" ")
            if route[0] not in _ROUTES:  # an earlier build wrote a number before the time
                since, _, route = route.partition(b" ")
            history = JobHistory(route, since)
        jobs.append(
            new(kind, (job_id, f"{head}{number:03d}", 1, name.decode(errors="replace"), data, opts, history, False))
        )
    return jobs
