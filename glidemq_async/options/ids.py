"""Ids that a client makes for its jobs, so that nobody can guess them."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, get_args

GeneratedIds: TypeAlias = Literal["sequence", "uuid4", "uuid7"]
"""How jobs without an id of their own are named."""

_RANDOM_BYTES: Final = 10


def id_maker(ids: GeneratedIds) -> Callable[[], str] | None:
    """Return what makes an id, None when the server counts. Raises ValueError for an unknown kind."""
    if ids not in get_args(GeneratedIds):
        raise ValueError(f"ids must be one of {', '.join(map(repr, get_args(GeneratedIds)))}, got {ids!r}")
    return {"uuid4": _uuid4, "uuid7": _uuid7}.get(ids)


def _uuid4() -> str:
    return str(uuid.uuid4())


def _uuid7() -> str:
    """Return a UUID of version 7 (RFC 9562): 48 bits of milliseconds, then 74 random bits."""
    number = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(_RANDOM_BYTES), "big")
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))
