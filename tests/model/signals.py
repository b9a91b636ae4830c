"""Compares suspended jobs, mailboxes, and what the runs of jobs get from signals, with the model."""

from __future__ import annotations

from typing import cast

import msgpack

from tests.model.compare import same
from tests.model.driver import Belongings
from tests.model.lines import Lines as Queue
from tests.model.parts import Job


def compare_signals(stored: Belongings, model: Queue) -> None:
    """Check the deadlines of all suspended jobs, every mailbox, and every hand-over."""
    same("suspended", stored.suspended, {job.id: job.due for job in model.having("suspended")})
    warm = {job.id: job.warm for job in model.having("suspended") if job.warm and not job.record_lost}
    same("workers of warm runs", stored.warm, warm)
    live = [job for job in model.jobs.values() if not job.over and not job.record_lost]
    lost = {job.id for job in model.jobs.values() if job.record_lost}
    boxes = {id_: box for id_, box in stored.mailboxes.items() if id_ not in lost}
    same("mailboxes", boxes, {job.id: [one.stored() for one in job.mailbox] for job in live if job.mailbox})
    fields = {field: value for field, value in stored.signalled.items() if field[1:] not in lost}
    sizes = {
        f"m{job.id}": f"{len(job.mailbox)} {sum(len(one.stored()) for one in job.mailbox)}"
        for job in live
        if job.mailbox
    }
    same("sizes of mailboxes", {field: value for field, value in fields.items() if field[0] == "m"}, sizes)
    handed = {f"w{job.id}": hand_over(job) for job in live if job.handed[:2] != ("", "")}
    same("hand-overs", {field: _unpacked(value) for field, value in fields.items() if field[0] == "w"}, handed)


def hand_over(job: Job) -> list[str]:
    """Return what the runs of a job get, as it is stored."""
    how, step, signals = job.handed
    return [how, step, *(one.stored() for one in signals)]


def _unpacked(stored: str) -> list[str]:
    packed = stored.encode(errors="surrogateescape")
    return [item.decode() for item in cast("list[bytes]", msgpack.unpackb(packed, raw=True))]
