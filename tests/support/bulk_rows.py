"""Rows of a bulk write, as the calls of a write take them."""

from __future__ import annotations

import msgpack

from glidemq_async.functions.calling import Arg


def rows(*ids: str, extra: bytes = b"") -> list[Arg]:
    """A job for each id, flat, with the id as its data."""
    found: list[Arg] = []
    for id_ in ids:
        found += [id_, "n", msgpack.packb(id_), b"", extra]
    return found
