"""Subjects of messages, and the patterns of subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, TypeAlias, cast

from glidemq_async.durations import instant_to_ms
from glidemq_async.stored.names import check_name

Start: TypeAlias = "str | datetime"
"""The place at which reading begins: "now", "beginning", an instant with a time zone, or the id of a message."""

MAX_SUBJECT: Final = 255
MAX_TOKENS: Final = 16
MAX_PATTERNS: Final = 32


def check_subject(subject: object) -> str:
    """Return a valid subject: tokens that are separated by dots. Raises TypeError or ValueError."""
    text = _checked("subject", subject)
    for token in text.split("."):
        if token in ("*", ">") or token.startswith("!"):
            raise ValueError(f"subject {text!r} contains {token!r}, which is only for patterns")
    return text


def check_patterns(patterns: object) -> tuple[str, ...]:
    """Return valid patterns. Raises TypeError or ValueError.

    A pattern is a subject in which the token `*` fits any token, and the last token `>` fits one or more tokens. `!` at
    the beginning excludes the subjects that fit.
    """
    if isinstance(patterns, str) or not isinstance(patterns, Sequence):
        raise TypeError(f"patterns must be a list of texts, got {patterns!r}")
    found = tuple(_check_pattern(pattern) for pattern in cast("Iterable[object]", patterns))
    if len(found) > MAX_PATTERNS:
        raise ValueError(f"at most {MAX_PATTERNS} patterns are allowed, got {len(found)}")
    return found


def _check_pattern(pattern: object) -> str:
    text = _checked("pattern", pattern)
    tokens = text.removeprefix("!").split(".")
    if ">" in tokens[:-1]:
        raise ValueError(f"pattern {text!r} has a > before its end; > fits all tokens up to the end")
    for token in tokens:
        if token not in ("*", ">") and ("*" in token or ">" in token or "!" in token):
            raise ValueError(f"pattern {text!r} has a wildcard inside the token {token!r}; a wildcard is a whole token")
    return text


def _checked(kind: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {kind} must be a str, not {value!r}")
    if len(value.encode(errors="replace")) > MAX_SUBJECT:
        raise ValueError(f"a {kind} has at most {MAX_SUBJECT} bytes, got {value[:40]!r}…")
    if not value.isprintable() or " " in value:
        raise ValueError(f"{kind} {value!r} contains a space or a control character")
    tokens = value.removeprefix("!").split(".")
    if not all(tokens):
        raise ValueError(f"{kind} {value!r} has an empty token; write tokens that are separated by one dot")
    if len(tokens) > MAX_TOKENS:
        raise ValueError(f"a {kind} has at most {MAX_TOKENS} tokens, got {len(tokens)}")
    return value


def fits(patterns: Sequence[str], subject: str) -> bool:
    """Return whether a subject fits no exclusion, and one of the other patterns if there are any."""
    tokens = subject.split(".")
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    refused = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    is_wanted = not wanted or any(_fits_one(pattern, tokens) for pattern in wanted)
    return is_wanted and not any(_fits_one(pattern, tokens) for pattern in refused)


def _fits_one(pattern: str, tokens: list[str]) -> bool:
    parts = pattern.split(".")
    if parts[-1] == ">":
        parts.pop()
        if len(tokens) <= len(parts):
            return False
        tokens = tokens[: len(parts)]
    return len(parts) == len(tokens) and all(part in ("*", token) for part, token in zip(parts, tokens, strict=True))


def stored_start(start: object) -> str:
    """Return the stored form of a start. Raises TypeError or ValueError."""
    if isinstance(start, datetime):
        return str(instant_to_ms("start", start))
    if not isinstance(start, str):
        raise TypeError(f'start must be "now", "beginning", an instant or the id of a message, got {start!r}')
    if start in ("now", "beginning"):
        return start
    ms, dash, sequence = start.partition("-")
    if not dash or not (ms.isascii() and ms.isdigit() and sequence.isascii() and sequence.isdigit()):
        raise ValueError(f'start must be "now", "beginning", an instant or the id of a message, got {start!r}')
    return start


def topic_queue(topic: str) -> str:
    """Return the name that stands for a topic in store keys. Raises the errors of `check_name`."""
    return f"topic/{check_name('topic name', topic)}"


def subscription_queue(topic: str, name: str) -> str:
    """Return the name of the queue of a subscription."""
    check_name("topic name", topic)
    return check_name("queue name", f"{topic}.{check_name('subscription name', name)}")
