"""The signals, the step and the cause of a resume that the runs of a job get, as stored by functions/signals.lua."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import msgpack

ResumeCause: TypeAlias = Literal["signal", "timeout", "children", "operator"]
"""Why a suspended job runs again: a signal, its timeout, the end of a child, or a call of `resume_job`."""

SEPARATOR: Final = "\x1f"
_SEPARATOR: Final = SEPARATOR.encode()
_CHILD: Final = "\x1d"
"""The name in the stored form of a wait that stands for the end of any child."""
_ASKS: Final = "\x1e"
"""Separates the name of a stored signal from its question."""


class StoredSignal(NamedTuple):
    """A signal with its payload as stored. `sent` is in server milliseconds.

    `question` is the key of the reply for which the sender waits, "" if it waits for none.
    """

    name: str
    data: bytes
    sent: int
    question: str = ""


class HandOver(NamedTuple):
    """The signals and the step for the runs of a job. `cause` is "" without a resume, `step` is "" without a step."""

    cause: ResumeCause | Literal[""]
    step: str
    signals: tuple[StoredSignal, ...]


NOTHING: Final = HandOver("", "", ())


def read_hand_over(packed: bytes | None) -> HandOver:
    """Decode a stored hand-over. Bytes that somebody has damaged count as none."""
    if not packed:
        return NOTHING
    try:
        cause, step, *signals = cast("list[bytes]", msgpack.unpackb(packed, raw=True))
        return HandOver(cast("ResumeCause", cause.decode()), step.decode(), tuple(map(_signal, signals)))
    except (TypeError, ValueError, AttributeError):
        return NOTHING


def packed_hand_over(cause: str, step: str, signals: Iterable[StoredSignal]) -> bytes:
    """Encode a hand-over in its stored form."""
    return msgpack.packb([cause.encode(), step.encode(), *map(_stored, signals)])


def _stored(signal: StoredSignal) -> bytes:
    head = f"{signal.name}{_ASKS}{signal.question}" if signal.question else signal.name
    return b"%d 0 %s%s%s" % (signal.sent, head.encode(), _SEPARATOR, signal.data)


def _signal(stored: bytes) -> StoredSignal:
    head, _, data = stored.partition(_SEPARATOR)
    sent, _, named = head.decode().split(" ", 2)
    name, _, question = named.partition(_ASKS)
    return StoredSignal(name, data, int(sent), question)


class Waits(NamedTuple):
    """The signals for which a job is suspended. `names` is None for any signal. `single`: the resume takes one signal.

    `children`: the end of a child resumes it too.
    """

    reason: str
    names: tuple[str, ...] | None
    single: bool = False
    children: bool = False

    def stored(self) -> str:
        """Return the stored form, the field `waits` of a record."""
        kind = "a" if self.names is None else "n"
        kind = kind.upper() if self.single else kind
        return SEPARATOR.join([kind + self.reason, *(self.names or ()), *([_CHILD] if self.children else ())])


def read_waits(stored: bytes) -> Waits:
    """Decode the field `waits` of a record."""
    reason, *names = stored.decode(errors="replace").split(SEPARATOR)
    children = names[-1:] == [_CHILD]
    signals = None if reason[:1] in {"a", "A"} else tuple(names[:-1] if children else names)
    return Waits(reason[1:], signals, reason[:1].isupper(), children)
