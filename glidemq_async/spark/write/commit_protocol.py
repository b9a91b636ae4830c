"""Opening a write and ending it, for every queue that it goes to."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final, Literal

from glidemq_async.errors import GlideMQError, IncompatibleQueueError
from glidemq_async.spark.connection import Connection
from glidemq_async.spark.write.errors import WriteFenced, told
from glidemq_async.spark.write.options import WriteOptions
from glidemq_async.spark.write.write_plan import WritePlan, functions_of
from glidemq_async.storage.protocol import FunctionError

__all__ = ["abort_labelled", "end_write", "label_of", "open_write", "order_run", "write_id_of"]

_NEWEST: Final = 100


def write_id_of(options: WriteOptions) -> str:
    """Return the id of the write: the one that was given, that of the transaction, or a new one."""
    if options.write_id:
        return options.write_id
    if options.txn_app_id:
        return f"{options.txn_app_id}@{options.txn_version}"
    return uuid.uuid4().hex


async def order_run(connection: Connection, options: WriteOptions) -> dict[str, int]:
    """Return for every queue the order of a run that is planned now: tasks of an older one are too late for its writes.

    Raises as `open_write` does.
    """
    orders: dict[str, int] = {}
    for queue in options.queues:
        functions = functions_of(connection, options, queue)
        with _told(queue):
            await functions.open_queue(None)
            orders[queue] = await functions.plan_write()
    return orders


async def open_write(
    connection: Connection,
    options: WriteOptions,
    write_id: str,
    token: str,
    label: str = "",
    orders: Mapping[str, int] | None = None,
) -> WritePlan:
    """Open every queue and the write in it, and return what tasks need. Without `orders` this run is the newest.

    Raises IncompatibleQueueError, WriteFenced, and ValueError for `onInvalid=dlq` without a dead-letter queue.
    """
    queues: dict[str, str] = {}
    for queue in options.queues:
        functions = functions_of(connection, options, queue)
        with _told(queue):
            state = await functions.open_queue(None)
            if options.on_invalid == "dlq" and not await functions.get_dead_letter_queue():
                raise ValueError(
                    f"onInvalid=dlq, and queue {queue!r} has no dead-letter queue: name one with "
                    "Queue.set_dead_letter_queue, or use onInvalid=drop"
                )
            app, version, order = options.txn_app_id, options.txn_version, (orders or {}).get(queue, 0)
            if await functions.open_write(write_id, token, options.ttl_ms, app, version, label, order):
                queues[queue] = state.incarnation
    return WritePlan(options, write_id, token, queues)


@contextmanager
def _told(queue: str) -> Generator[None]:
    try:
        yield
    except FunctionError as error:
        if error.code in {"INCOMPATIBLE", "WRONGTYPE"}:
            raise IncompatibleQueueError(f"queue {queue!r} cannot be written: {error.message}") from None
        raise told(error, queue) from None


async def end_write(
    connection: Connection, plan: WritePlan, state: Literal["committed", "aborted"], partitions: int
) -> None:
    """Commit or abort a write in every queue. Raises WriteFenced when a commit comes too late.

    An abort ends what is open, in every queue, whatever happens in another one.
    """
    problems: list[str] = []
    for queue in plan.queues:
        functions = functions_of(connection, plan.options, queue)
        try:
            word, found = await functions.end_write(plan.write_id, plan.token, state, partitions)
        except GlideMQError as error:
            if state == "committed":
                raise
            problems.append(f"queue {queue!r}: {error}")
            continue
        if word != "ok" and state == "committed":
            raise WriteFenced(f"write {plan.write_id} of queue {queue!r} cannot be committed: {word} {found}".rstrip())
    if problems:
        raise GlideMQError(f"write {plan.write_id} was not aborted everywhere: {'; '.join(problems)}")


async def abort_labelled(connection: Connection, options: WriteOptions, label: str) -> None:
    """Abort the open writes with a label, among the newest of each queue."""
    for queue in options.queues:
        functions = functions_of(connection, options, queue)
        _, ids = await functions.list_writes("", _NEWEST)
        for write_id, found in zip(ids, await functions.get_writes(ids), strict=True):
            if found.get(b"state") == b"open" and found.get(b"label") == label.encode():
                await functions.end_write(write_id, found[b"token"].decode(), "aborted")


def label_of(checkpoint: str, batch_id: int) -> str:
    """Return the label of a micro-batch, "" where the checkpoint is not known."""
    return blake2b(f"{batch_id} {checkpoint}".encode(), digest_size=12).hexdigest() if checkpoint else ""
