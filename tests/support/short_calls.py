"""Function libraries whose calls end after the least possible work, as on a server that is too slow for more."""

from __future__ import annotations

from glidemq_async.storage.redis.library import Library, shipped

_CHANGES = (
    ("local SETTLED, CLAIMED, ADDED = 0.001, 0.002, 0.002\n", "local SETTLED, CLAIMED, ADDED = 0, 0.002, 0\n"),
    ("local STEP, COSTLY_STEP = 64, 16\n", "local STEP, COSTLY_STEP = 1, 1\n"),
    ("local STEP, KEYED_STEP, COSTLY_STEP = 128, 64, 16\n", "local STEP, KEYED_STEP, COSTLY_STEP = 1, 1, 1\n"),
)


_NO_TIME = (
    ("local ENOUGH = 0.002\n", "local ENOUGH = 0\n"),
    ("local SETTLED, CLAIMED, ADDED = 0.001, 0.002, 0.002\n", "local SETTLED, CLAIMED, ADDED = 0, 0, 0\n"),
)


def one_job_a_call() -> Library:
    """Return a library whose calls add or settle one job."""
    return _changed(_CHANGES)


def no_time_a_call() -> Library:
    """Return a library whose calls have used their time before they begin."""
    return _changed(_NO_TIME)


def _changed(changes: tuple[tuple[str, str], ...]) -> Library:
    text = shipped().text
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return Library(text)
