"""The end of a job, as a client that waits for it receives it."""

from __future__ import annotations

from typing import NamedTuple


class Ended(NamedTuple):
    """The end of a job: its final state, and its stored result or error."""

    state: str
    payload: bytes
    reason: str
