"""Comparing what is stored of dead letters: the outbox, what was moved here, and the tokens of deliveries."""

from __future__ import annotations

from typing import cast

import msgpack

from glidemq_async.functions.dead_letter_calls import Posted as StoredEntry
from tests.model.compare import route, same
from tests.model.driver import Snapshot
from tests.model.letters import LetterQueue
from tests.model.parts import Letter
from tests.model.posting import Posted

PREFIX = "model"


def raw(text: str) -> bytes:
    """The stored bytes of what a snapshot tells as text."""
    return text.encode(errors="surrogateescape")


def letter(packed: bytes) -> Letter:
    """Where a dead letter comes from, as it is stored."""
    words = cast("tuple[str, str, str, str, int, int, str]", msgpack.unpackb(packed, use_list=False))
    return Letter(*words[:6], route(words[6]))


def options(opts: bytes) -> tuple[int | None, int | None]:
    """The lease and the time to live that options ask for."""
    found = cast("dict[str, int]", msgpack.unpackb(opts)) if opts else {}
    return found.get("l"), found.get("r")


def posted(entry: StoredEntry, *, named: bool) -> Posted:
    """An entry as the model tells it; named: its id ends with the entry's own."""
    to = entry.to.removeprefix(PREFIX + ":{").removesuffix("}")
    id_ = entry.id.decode()
    if named:
        assert id_.endswith("/" + entry.entry), f"the entry {entry.entry} is named {id_}"
        id_ = id_.removesuffix(entry.entry)
    same("extra of a posted job", entry.extra, b"")
    return Posted(to, id_, entry.name.decode(), entry.data.decode(), options(entry.opts), letter(entry.letter))


def compare_letters(seen: Snapshot, model: LetterQueue) -> None:
    """Find any difference; learn the names of new entries."""
    rows = [
        StoredEntry(entry, fields["to"], *(raw(fields[name]) for name in StoredEntry._fields[2:]))
        for entry, fields in seen.outbox
    ]
    known, model.entries = model.entries, [row.entry for row in rows]
    same("entries of the outbox that were there", model.entries[: len(known)], known)
    model.accept([posted(row, named=False) for row in rows[len(known) :]])
    same("outbox", [posted(row, named=False) for row in rows], model.outbox or [])
    same("whether there is an outbox", "outbox" in seen.keys, model.outbox is not None)
    if model.outbox is None:
        same("last entry of the outbox that is gone", seen.meta.get("outbox_last", ""), model.last_entry)
    model.last_entry = model.entries[-1] if model.entries else model.last_entry
    until, _, holder = seen.meta.get("relaying", "").partition(" ")
    same("who relays", (int(until), holder) if until else None, model.relaying)
    same("where dead letters go", seen.meta.get("dead_letter", ""), model.dead_letter)
    same("moved here", seen.moved, {job.id: job.moved for job in model.moved()})
    same("tokens of deliveries", seen.inbox, model.tokens)
    for job in model.jobs.values():
        if not job.torn:
            packed = seen.records.get(job.id, {}).get("letter")
            same(f"letter of job {job.id}", letter(raw(packed)) if packed else None, job.origin)
