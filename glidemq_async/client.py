"""What a queue, a worker and their jobs share: one queue's keys, functions and serializer over one storage."""

from __future__ import annotations

import asyncio
import uuid
from typing import Final

from glidemq_async.errors import IncompatibleQueueError, PayloadTooLarge
from glidemq_async.functions.callers import Functions, QueueState
from glidemq_async.keys import QueueKeys
from glidemq_async.option_checks import whole_number
from glidemq_async.results import ResultListener
from glidemq_async.serialization import DEFAULT_LIMIT, MsgpackSerializer, Serializer, decode, encode
from glidemq_async.storage import Storage, open_storage
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.timekeeping import Timekeeper

DEFAULT_PREFIX: Final = "glide"


class QueueClient:
    """The connection of one process to one queue. Opened once, closed once; the storage only if it is its own."""

    def __init__(
        self,
        queue: str,
        storage: str | Storage | None,
        *,
        prefix: str,
        mode: str | None,
        serializer: Serializer | None,
        payload_limit: int | None,
    ) -> None:
        self.keys = QueueKeys(prefix, queue)
        if mode not in (None, "global", "keyed"):
            raise ValueError(f'mode must be None, "global" or "keyed", got {mode!r}')
        if serializer is not None and not isinstance(serializer, Serializer):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"serializer must have dumps and loads, got {serializer!r}")
        if payload_limit is not None:
            whole_number("payload_limit", payload_limit, least=1)
        self.owns_storage = not isinstance(storage, Storage)
        self.storage: Storage = open_storage(storage)
        self.functions = Functions(self.storage, self.keys.base)
        self.serializer: Serializer = serializer or MsgpackSerializer()
        self.payload_limit = DEFAULT_LIMIT if payload_limit is None else payload_limit
        self.id = uuid.uuid4().hex
        self.results = ResultListener(self.storage, self.functions, self.id)
        self.timekeeper = Timekeeper(self.functions, self.id)
        self._mode = mode
        self._opening = asyncio.Lock()
        self.state: QueueState | None = None

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self.keys.queue

    async def open(self) -> None:
        """Connect and check the stored queue; idempotent. Raises StorageUnavailable, IncompatibleQueueError."""
        if self.state is None:
            async with self._opening:
                await self._open_once()

    def keep_time(self) -> None:
        """Fire the queue's job schedulers from now on; idempotent. For an open client."""
        assert self.state is not None  # noqa: S101 - open
        self.timekeeper.start(any_scheduled=self.state.has_schedulers)

    async def _open_once(self) -> None:
        if self.state is not None:
            return
        await self.storage.connect()
        try:
            self.state = await self.functions.open_queue(self._mode)
        except FunctionError as error:
            raise self._refused(error) from None

    def _refused(self, error: FunctionError) -> Exception:
        if error.code not in {"INCOMPATIBLE", "WRONGTYPE"}:
            return error
        return IncompatibleQueueError(
            f"queue {self.queue!r} on {self.storage.url} cannot be used: {error.message}; "
            "use another queue name or prefix, or the settings the queue was made with"
        )

    def sibling(self, queue: str) -> QueueClient:
        """Return a client of another queue of the same storage and prefix."""
        return self._other(QueueKeys(self.keys.prefix, queue))

    def at(self, base: str) -> QueueClient:
        """Return a client of the queue with this base key, in the same storage."""
        return self._other(QueueKeys.of(base))

    def _other(self, keys: QueueKeys) -> QueueClient:
        return QueueClient(keys.queue, self.storage, prefix=keys.prefix, mode=None, serializer=None, payload_limit=None)

    def check_key(self, key: str | None) -> None:
        """Refuse (ValueError) a job without a key in a queue of mode "keyed", and one with a key in a "global" one."""
        mode = self.state.mode if self.state else None
        if mode == "keyed" and key is None:
            raise ValueError(f'queue {self.queue!r} is of mode "keyed": every job needs a key=, this one has none')
        if mode == "global" and key is not None:
            raise ValueError(
                f'queue {self.queue!r} is of mode "global": key={key!r} would have no effect; leave it out'
            )

    async def close(self) -> None:
        """Stop listening and close the storage if it was opened here; idempotent."""
        await self.timekeeper.close()
        await self.results.close()
        if self.owns_storage:
            await self.storage.close()

    def encode(self, value: object, what: str) -> bytes:
        """Turn a payload into bytes; raises SerializationError or PayloadTooLarge."""
        return encode(self.serializer, value, self.payload_limit, what)

    def check_text(self, text: str, what: str) -> None:
        """Refuse what is no text, has no UTF-8 form (ValueError) or is larger than a payload may be."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a {what} must be a str, not {text!r}")
        size = len(text.encode())
        if size > self.payload_limit:
            raise PayloadTooLarge(what, size, self.payload_limit)

    def decode(self, data: bytes, what: str) -> object:
        """Turn stored bytes into the payload; raises SerializationError."""
        return decode(self.serializer, data, what)
