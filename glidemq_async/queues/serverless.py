"""A pool of producers for functions that are called again and again in one process."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, Unpack, cast
from urllib.parse import parse_qsl, urlsplit

from glidemq_async.options.job_options import JobOptions
from glidemq_async.queues.producer import Producer, ProducerSettings
from glidemq_async.storage import StorageLike

VARIABLE: Final = "GLIDEMQ_URL"


class ServerlessPool:
    """Keeps one producer for each combination of queue, storage and settings.

    A handler that asks for a producer in each call gets the same one, and with it the open connection, as long as the
    process lives. Producers are compared by a fingerprint of their settings, which shows no credentials. Two URLs with
    the same hosts and options in another order have the same fingerprint. Objects, such as a Storage or a serializer,
    are equal only to themselves.

    All methods except `close_all` work without a connection and an event loop. The pool can be used after `close_all`.
    `serverless_pool` is one pool for the whole process.
    """

    def __init__(self) -> None:
        # A fingerprint must not confirm a guessed password, so it depends on a secret of this process.
        self._secret = secrets.token_bytes(32)
        self._producers: dict[str, Producer[Any]] = {}

    def __repr__(self) -> str:
        return f"<ServerlessPool of {self.size} producers>"

    @property
    def size(self) -> int:
        """The number of producers."""
        return len(self._producers)

    def get_producer(
        self, name: str, storage: StorageLike = None, **settings: Unpack[ProducerSettings]
    ) -> Producer[Any]:
        """Return the producer for these settings, the same one each time. Raises the errors of Producer."""
        fingerprint = self.fingerprint(name, storage, **settings)
        found = self._producers.get(fingerprint)
        if found is None or found.is_closed:
            # The producer keeps the objects among its settings alive, so that no later object gets their identity.
            found = self._producers[fingerprint] = Producer(name, storage, **settings)
        return found

    def fingerprint(self, name: str, storage: StorageLike = None, **settings: Unpack[ProducerSettings]) -> str:
        """Return the fingerprint of the settings of a producer, for logs. Another process computes another one."""
        given = {option: _comparable(value) for option, value in sorted(settings.items())}
        address = _address(storage) if storage is None or isinstance(storage, str) else f"object {id(storage)}"
        text = repr((name, address, given))
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()[:32]

    async def close_all(self) -> None:
        """Close all producers, and forget them. Raises the first error after all are closed."""
        producers, self._producers = list(self._producers.values()), {}
        outcomes = await asyncio.gather(*(producer.close() for producer in producers), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome


serverless_pool: Final = ServerlessPool()
"""The pool of this process."""


def _address(url: str | None) -> object:
    """Return the parts of a URL in an order that does not depend on how it was written."""
    url = url if url is not None else os.environ.get(VARIABLE, "")
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    return parts.scheme, login, sorted(hosts.split(",")), parts.path, sorted(parse_qsl(parts.query))


def _comparable(value: object) -> object:
    """Return a value whose repr is equal for equal settings."""
    if isinstance(value, JobOptions):
        return repr(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (list, tuple)):
        return [_comparable(item) for item in cast("Sequence[object]", value)]
    return value if value is None or isinstance(value, (str, int, float)) else f"object {id(value)}"
