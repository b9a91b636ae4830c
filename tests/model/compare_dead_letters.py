"""Compares the stored data of dead letters: the outbox, the jobs that were moved here, and the delivery tokens."""

from __future__ import annotations

from typing import cast

import msgpack

from glidemq_async.functions.outbox import Posted as StoredEntry
from tests.model.compare import route, same
from tests.model.dead_letters import DeadLetterQueue
from tests.model.driver import Snapshot
from tests.model.parts import Origin
from tests.model.posting import Posted

PREFIX = "model"
# The stored names of the fields of an outbox entry, in the order of `StoredEntry`.
_FIELDS = ("id", "name", "data", "opts", "extra", "letter")


def raw(text: str) -> bytes:
    """Return the stored bytes that a snapshot holds as text."""
    return text.encode(errors="surrogateescape")


def decode_origin(packed: bytes) -> Origin:
    """Return the origin of a dead letter as it is stored."""
    fields = cast("tuple[str, str, str, str, int, int, str]", msgpack.unpackb(packed, use_list=False))
    return Origin(*fields[:6], route(fields[6]))


def options(opts: bytes) -> tuple[int | None, int | None]:
    """Return the lease and the time to live that the stored options ask for."""
    found = cast("dict[str, int]", msgpack.unpackb(opts)) if opts else {}
    return found.get("l"), found.get("r")


def posted(entry: StoredEntry, *, named: bool) -> Posted:
    """Return an outbox entry in the form of the model. `named`: its id must end with the entry's own id."""
    to = entry.to.removeprefix(PREFIX + ":{").removesuffix("}")
    id_ = entry.id.decode()
    if named:
        assert id_.endswith("/" + entry.entry), f"the entry {entry.entry} is named {id_}"
        id_ = id_.removesuffix(entry.entry)
    same("extra of a posted job", entry.extra, b"")
    return Posted(to, id_, entry.name.decode(), entry.data.decode(), options(entry.opts), decode_origin(entry.origin))


def compare_dead_letters(seen: Snapshot, model: DeadLetterQueue) -> None:
    """Raise an AssertionError if the snapshot and the model differ; store the names of new entries in the model."""
    rows = [StoredEntry(entry, fields["to"], *(raw(fields[name]) for name in _FIELDS)) for entry, fields in seen.outbox]
    known, model.entries = model.entries, [row.entry for row in rows]
    same("known entries of the outbox", model.entries[: len(known)], known)
    model.accept([posted(row, named=False) for row in rows[len(known) :]])
    same("outbox", [posted(row, named=False) for row in rows], model.outbox or [])
    same("existence of the outbox", "outbox" in seen.keys, model.outbox is not None)
    if model.outbox is None:
        same("last entry of the removed outbox", seen.meta.get("outbox_last", ""), model.last_entry)
    model.last_entry = model.entries[-1] if model.entries else model.last_entry
    until, _, holder = seen.meta.get("relaying", "").partition(" ")
    same("relaying worker", (int(until), holder) if until else None, model.relaying)
    same("name of the dead-letter queue", seen.meta.get("dead_letter", ""), model.dead_letter)
    same("moved here", seen.moved, {job.id: job.moved for job in model.moved()})
    same("delivery tokens", seen.inbox, model.tokens)
    for job in model.jobs.values():
        if not job.record_lost:
            packed = seen.records.get(job.id, {}).get("letter")
            same(f"origin of job {job.id}", decode_origin(raw(packed)) if packed else None, job.origin)
