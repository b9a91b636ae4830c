"""The exceptions of the operations core."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from glidemq_async.errors import GlideMQError


class QueueNotFound(GlideMQError, LookupError):
    """Raised when an operation names a queue that does not exist. Operations create no queues."""

    def __init__(self, queue: str, known: Sequence[str] = ()) -> None:
        close = get_close_matches(queue, known, 1)
        hint = f"did you mean {close[0]!r}?" if close else "a queue exists once it was opened by a producer or a worker"
        super().__init__(f"there is no queue {queue!r}: {hint}")
        self.queue = queue
        self.known = tuple(known)

    def __reduce__(self) -> tuple[type[QueueNotFound], tuple[str, tuple[str, ...]]]:
        return type(self), (self.queue, self.known)


class NoSuchHold(GlideMQError, LookupError):
    """Raised for the release of a setting that no operator holds. `held` are the held settings of the queue."""

    def __init__(self, queue: str, setting: str, held: Sequence[str] = ()) -> None:
        known = f"held are {', '.join(map(repr, held))}" if held else "no setting of this queue is held"
        super().__init__(f"no operator holds the setting {setting!r} of queue {queue!r}: {known}")
        self.queue = queue
        self.setting = setting
        self.held = tuple(held)

    def __reduce__(self) -> tuple[type[NoSuchHold], tuple[str, str, tuple[str, ...]]]:
        return type(self), (self.queue, self.setting, self.held)


class SettingsChanged(GlideMQError):
    """Raised when the limits of a queue have changed between the read and the write of the caller."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"the limits of queue {queue!r} have changed since they were read; read them again")
        self.queue = queue

    def __reduce__(self) -> tuple[type[SettingsChanged], tuple[str]]:
        return type(self), (self.queue,)


class WrongTicket(GlideMQError, ValueError):
    """Raised for a change whose ticket does not belong to a preview of the present state."""


class OperationNotFound(GlideMQError, LookupError):
    """Raised when a bulk operation does not exist, or when its preview has expired before the start."""

    def __init__(self, operation_id: str) -> None:
        super().__init__(
            f"there is no operation {operation_id!r}: a preview can be started for 15 minutes, and an operation is "
            "kept for 30 days; make a new preview"
        )
        self.operation_id = operation_id

    def __reduce__(self) -> tuple[type[OperationNotFound], tuple[str]]:
        return type(self), (self.operation_id,)


class OperationRefused(GlideMQError):
    """Raised when a bulk operation cannot be previewed, started or cancelled; the message says why."""


class AlertNotFound(GlideMQError, LookupError):
    """Raised when no alert rule has the name."""

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        close = get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]!r}?" if close else "`glidemq alerts list` shows the rules"
        super().__init__(f"there is no alert rule {name!r}: {hint}")
        self.name = name
        self.known = tuple(known)

    def __reduce__(self) -> tuple[type[AlertNotFound], tuple[str, tuple[str, ...]]]:
        return type(self), (self.name, self.known)


class TooManyAlerts(GlideMQError):
    """Raised when 200 alert rules exist."""

    def __init__(self) -> None:
        super().__init__("there are 200 alert rules, and more are not stored; remove some of them")


class WorkerNotReached(GlideMQError, LookupError):
    """Raised when a worker gets no commands: it has ended, its link is lost, or its name is wrong."""

    def __init__(self, queue: str, name: str) -> None:
        super().__init__(
            f"worker {name!r} of queue {queue!r} does not listen: it has ended or lost its link; look at the list of "
            "workers, and check that the user of the server may publish to the channels of the queue"
        )
        self.queue = queue
        self.name = name

    def __reduce__(self) -> tuple[type[WorkerNotReached], tuple[str, str]]:
        return type(self), (self.queue, self.name)
