"""Rows of a bulk write, in the form of the arguments of its calls."""

from __future__ import annotations

import msgpack

from glidemq_async.functions.calling import Arg


def rows(*ids: str, extra: bytes = b"") -> list[Arg]:
    """Return a flat list with a job for each id, which is also its data."""
    found: list[Arg] = []
    for id_ in ids:
        found += [id_, "n", msgpack.packb(id_), b"", extra]
    return found
