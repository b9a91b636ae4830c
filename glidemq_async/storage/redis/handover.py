"""The hand-over of an open connection from redis-py to `Wire`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidemq_async.storage.redis.wire import Wire

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

# redis-py opens the socket, encrypts it, logs in and selects the database. It does so through a pair of asyncio
# streams. A call through these streams costs about 75 us of client time, a call through `Wire` costs 40. An idle worker
# pays this for every job, so the connection changes hands once it is open: its transport gets a `Wire` as its new
# protocol, and redis-py forgets the connection.
#
# redis-py has no public method for this. The hand-over relies on four facts, which tests/storage/test_handover.py
# checks:
#
# - `Connection._reader` and `Connection._writer` are asyncio streams while the connection is open.
# - With both set to None, redis-py regards the connection as closed. It then neither closes the transport nor warns
#   about it when the connection is garbage-collected.
# - `connect` has read all replies to its own commands when it returns. In RESP2 a server sends nothing unasked, so the
#   reader holds no bytes that `Wire` would miss.
# - `StreamWriter.transport` accepts another protocol, on plain, unix and TLS transports of asyncio and of uvloop.
#
# The server may close the connection between its last reply and the hand-over. Only the streams notice that, and `Wire`
# would wait for ever. So the state of the transport is checked afterwards.
#
# A StreamWriter closes its transport when it is garbage-collected. The wire keeps the writer for this reason alone.


def take_over(connection: AbstractConnection, where: str) -> Wire:
    """Return a `Wire` on the transport of an open redis-py connection, which is unusable afterwards."""
    reader, writer = connection._reader, connection._writer  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if reader is None or writer is None:
        raise ConnectionError(f"{where} closed the connection during the login")
    connection._reader = connection._writer = None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    wire = Wire(where, writer)
    wire.connection_made(writer.transport)
    writer.transport.set_protocol(wire)
    if writer.transport.is_closing() or reader.at_eof():
        wire.drop("closed by the server during the login")
    return wire


def abandon(connection: AbstractConnection) -> None:
    """Close a redis-py connection whose login failed or was cancelled, without waiting for the peer."""
    writer = connection._writer  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    connection._reader = connection._writer = None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if writer is not None:
        # Not `close`, which would wait for the peer of a connection that did not answer. TLS even waits for its closing
        # message.
        writer.transport.abort()
