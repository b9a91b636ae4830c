"""The commit protocol: open a write in each of its queues, and commit or abort it there."""

# Each call below can race with tasks that Spark believes dead. Spark starts a task again when its executor does not
# answer, starts copies of slow tasks (speculation), and gives up tasks of a cancelled query, but the Python process of
# the old task may continue for seconds. On a lost host it continues for as long as it likes. Only the server can stop
# it, so each call of a task carries two things that the server checks (functions/writes.lua):
#
# - The token of the run that opened the write. When another run opens the same write, it brings a new token, and from
#   then on the server refuses calls with the old one (WRITEFENCED). The end of a write has the same effect, so no job
#   is added after a commit or an abort.
# - The ids of the rows. The server keeps a ledger of the ids that the write has added, so two attempts of one task that
#   run at the same time add each row once.
#
# A token alone does not say which of two runs is newer. The late task of an old run of a streaming query could open the
# micro-batch again with its old token and thereby fence the new run. Therefore a stream calls planWrite when a
# micro-batch is planned, in the driver, before any of its tasks exists. planWrite returns an order that grows with each
# call. Tasks pass it to openWrite, which refuses an order below the stored one. A batch write is opened in the planner,
# by one process, and needs no order: 0 means "newest".
#
# The queues of one write are ended one after the other, without a transaction over all of them.

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final, Literal

from glidemq_async.errors import GlideMQError, IncompatibleQueueError
from glidemq_async.spark.connection import Connection
from glidemq_async.spark.write.errors import WriteFenced, write_error
from glidemq_async.spark.write.options import WriteOptions
from glidemq_async.spark.write.write_plan import WritePlan, functions_of
from glidemq_async.storage.protocol import FunctionError

__all__ = ["abort_labelled", "end_write", "label_of", "open_write", "order_run", "write_id_of"]

_NEWEST: Final = 100


def write_id_of(options: WriteOptions) -> str:
    """Return the id of a write: `writeId`, the id of its transaction, or a random one."""
    if options.write_id:
        return options.write_id
    if options.txn_app_id:
        return f"{options.txn_app_id}@{options.txn_version}"
    return uuid.uuid4().hex


async def order_run(connection: Connection, options: WriteOptions) -> dict[str, int]:
    """Return the order of a run that is planned now, for each queue.

    Tasks of older runs cannot open its writes any more. Raises the same errors as `open_write`.
    """
    orders: dict[str, int] = {}
    for queue in options.queues:
        functions = functions_of(connection, options, queue)
        with _translated_errors(queue):
            await functions.queue.open(None)
            orders[queue] = await functions.writes.plan()
    return orders


async def open_write(
    connection: Connection,
    options: WriteOptions,
    write_id: str,
    token: str,
    label: str = "",
    orders: Mapping[str, int] | None = None,
) -> WritePlan:
    """Open each queue and the write in it, and return the plan for the tasks. Without `orders` this run is the newest.

    Raises IncompatibleQueueError, WriteFenced, and ValueError for `onInvalid=dlq` without a dead-letter queue.
    """
    queues: dict[str, str] = {}
    for queue in options.queues:
        functions = functions_of(connection, options, queue)
        with _translated_errors(queue):
            state = await functions.queue.open(None)
            if options.on_invalid == "dlq" and not await functions.dead_letters.get_queue():
                raise ValueError(
                    f"onInvalid=dlq, but queue {queue!r} has no dead-letter queue; set one with "
                    "Queue.set_dead_letter_queue, or use onInvalid=drop"
                )
            app, version, order = options.txn_app_id, options.txn_version, (orders or {}).get(queue, 0)
            if await functions.writes.open(write_id, token, options.ttl_ms, app, version, label, order):
                queues[queue] = state.incarnation
    return WritePlan(options, write_id, token, queues)


@contextmanager
def _translated_errors(queue: str) -> Generator[None]:
    try:
        yield
    except FunctionError as error:
        if error.code in {"INCOMPATIBLE", "WRONGTYPE"}:
            raise IncompatibleQueueError(f"queue {queue!r} cannot be written: {error.message}") from None
        raise write_error(error, queue) from None


async def end_write(
    connection: Connection, plan: WritePlan, state: Literal["committed", "aborted"], partitions: int
) -> None:
    """Commit or abort a write in each of its queues.

    Raises WriteFenced if another run has taken the write over before its commit.
    """
    # A failed commit stops at the first queue: Spark then calls abort, or the user runs the program again. An abort
    # continues with the other queues after an error, because each queue that stays open keeps accepting rows of late
    # tasks.
    problems: list[str] = []
    for queue in plan.queues:
        functions = functions_of(connection, plan.options, queue)
        try:
            status, found = await functions.writes.end(plan.write_id, plan.token, state, partitions)
        except GlideMQError as error:
            if state == "committed":
                raise
            problems.append(f"queue {queue!r}: {error}")
            continue
        if status != "ok" and state == "committed":
            reason = f"{status} {found}".rstrip()
            raise WriteFenced(f"write {plan.write_id} of queue {queue!r} cannot be committed: {reason}")
    if problems:
        raise GlideMQError(f"write {plan.write_id} was not aborted in all queues: {'; '.join(problems)}")


async def abort_labelled(connection: Connection, options: WriteOptions, label: str) -> None:
    """Abort the open writes with this label, among the newest 100 of each queue."""
    for queue in options.queues:
        functions = functions_of(connection, options, queue)
        # The micro-batch was opened moments ago, so it is among the newest writes. If it is not, it stays open, and the
        # next run of the query fences its tasks when it opens the same write.
        _, ids = await functions.writes.list_ids("", _NEWEST)
        for write_id, found in zip(ids, await functions.writes.get(ids), strict=True):
            if found.get(b"state") == b"open" and found.get(b"label") == label.encode():
                await functions.writes.end(write_id, found[b"token"].decode(), "aborted")


def label_of(checkpoint: str, batch_id: int) -> str:
    """Return the label of a micro-batch, or "" if its checkpoint is not known."""
    return blake2b(f"{batch_id} {checkpoint}".encode(), digest_size=12).hexdigest() if checkpoint else ""
