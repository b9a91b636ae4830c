"""Rows of the plainest kind, many at a time: an id, a name and a JSON text, and nothing wrong with any of them.

rows.py can read these as well, row by row; this is the same in less processor time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgpack

from glidemq_async.payloads.serialization import JsonSerializer
from glidemq_async.stored.names import MAX_ID_BYTES, check_id

__all__ = ["SimpleRows"]

# What raw_decode wraps; it raises StopIteration where no value begins.
_scan: Final = cast("Callable[[str, int], tuple[object, int]]", cast("Any", json.JSONDecoder()).scan_once)


class SimpleRows:
    """Reads runs of rows by the serializer, the prefix of ids and the limit of payloads of one write."""

    def __init__(self, serializer: str, id_prefix: str, payload_limit: int) -> None:
        self._prefix, self._limit = id_prefix, payload_limit
        # What comes out of JSON needs none of MsgpackSerializer's care for other types.
        packer = msgpack.Packer(strict_types=True)
        pack = cast("Callable[[object], bytes]", packer.pack)
        self._encode = pack if serializer == "msgpack" else JsonSerializer().dumps

    def read(
        self, ids: Sequence[Any], names: Sequence[Any], data: Sequence[Any]
    ) -> tuple[Sequence[str], list[bytes]] | None:
        """Return the ids and the payloads, or None when there is a row that needs a closer look."""
        try:
            return self._read(ids, names, data)
        except Exception:  # noqa: BLE001 - whoever looks closer says what is wrong
            return None

    def _read(
        self, ids: Sequence[Any], names: Sequence[Any], data: Sequence[Any]
    ) -> tuple[Sequence[str], list[bytes]] | None:
        joined = "".join(ids)  # raises TypeError for what is no text
        longest = max(map(len, ids)) + len(self._prefix)
        if not (all(ids) and joined.isascii() and joined.isprintable() and longest <= MAX_ID_BYTES):
            return None
        if self._prefix:
            # A prefix need not be ASCII: the longest id stands for all others.
            check_id("id", self._prefix + max(ids, key=len))
            ids = [self._prefix + each for each in ids]
        for name in set(names):
            check_id("job name", name)
        encode, payloads = self._encode, list[bytes]()
        for text in data:
            value, end = _scan(text, 0)
            if end != len(text):
                return None
            payloads.append(encode(value))
        return None if max(map(len, payloads)) > self._limit else (ids, payloads)
