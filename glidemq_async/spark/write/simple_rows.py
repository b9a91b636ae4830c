"""Fast reader for simple rows: valid ids, valid names and JSON texts, without options.

`RowReader` reads such rows too, one by one. This module gives the same result in less processor time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgpack

from glidemq_async.payloads.serialization import JsonSerializer
from glidemq_async.stored.names import MAX_ID_BYTES, check_id

__all__ = ["SimpleRows"]

# The scanner inside `raw_decode`. It raises StopIteration where no JSON value begins.
_scan: Final = cast("Callable[[str, int], tuple[object, int]]", cast("Any", json.JSONDecoder()).scan_once)


class SimpleRows:
    """Reader with the serializer, the id prefix and the payload limit of one write."""

    def __init__(self, serializer: str, id_prefix: str, payload_limit: int) -> None:
        self._prefix, self._limit = id_prefix, payload_limit
        # JSON values need none of the extension types of MsgpackSerializer, so the plain packer gives the same bytes.
        packer = msgpack.Packer(strict_types=True)
        pack = cast("Callable[[object], bytes]", packer.pack)
        self._encode = pack if serializer == "msgpack" else JsonSerializer().dumps

    def read(
        self, ids: Sequence[Any], names: Sequence[Any], data: Sequence[Any]
    ) -> tuple[Sequence[str], list[bytes]] | None:
        """Return the ids and the payloads, or None if a row must be read one by one."""
        # Every shortcut below must give the same bytes as RowReader for a valid row, and None for a row that RowReader
        # refuses. If it accepted such a row, the error would depend on the other rows of its chunk.
        try:
            return self._read(ids, names, data)
        except Exception:  # noqa: BLE001 - the reader of single rows raises a precise error
            return None

    def _read(
        self, ids: Sequence[Any], names: Sequence[Any], data: Sequence[Any]
    ) -> tuple[Sequence[str], list[bytes]] | None:
        joined = "".join(ids)  # raises TypeError for an id that is not a string
        longest = max(map(len, ids)) + len(self._prefix)
        if not (all(ids) and joined.isascii() and joined.isprintable() and longest <= MAX_ID_BYTES):
            return None
        if self._prefix:
            # The prefix may contain other characters than ASCII, so bytes count. The longest id represents all others.
            check_id("id", self._prefix + max(ids, key=len))
            ids = [self._prefix + each for each in ids]
        for name in set(names):
            check_id("job name", name)
        payloads = self._read_payloads(data)
        return None if payloads is None or max(map(len, payloads)) > self._limit else (ids, payloads)

    def _read_payloads(self, data: Sequence[str]) -> list[bytes] | None:
        encode, payloads = self._encode, list[bytes]()
        for text in data:
            value, end = _scan(text, 0)
            if end != len(text):
                return None
            payloads.append(encode(value))
        return payloads
