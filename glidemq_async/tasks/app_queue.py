"""The queues of an app. Each opens the storage of the app with its first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typing_extensions import override

from glidemq_async.queues.queue import Queue
from glidemq_async.stored.names import check_name


# A module declares `mq.queue("reports", limits=...)` while it is imported, before the program has chosen a storage. So
# the initialization of such a queue waits until one of its attributes is read for the first time. From then on it is an
# ordinary queue: `__getattr__` is called only for attributes that are missing, and costs nothing afterwards.
class AppQueue(Queue[Any, Any]):
    """A queue of an app. It opens the storage of the app with its first use, also after the app was closed."""

    def __init__(self, name: str, open_now: Callable[[AppQueue], None]) -> None:
        self._app_name = check_name("queue name", name)
        self._open_now = open_now

    @property
    @override
    def name(self) -> str:
        return self._app_name

    @property
    def is_bound(self) -> bool:
        """True from the first use of the queue until the app is closed."""
        return "_client" in vars(self)

    @override
    def __repr__(self) -> str:
        return super().__repr__() if self.is_bound else f"<Queue {self._app_name!r} of an app>"

    def __getattr__(self, attribute: str) -> Any:
        # Copies and inspections ask for special methods of objects that have no state yet.
        if attribute.startswith("__") or "_open_now" not in vars(self) or self.is_bound:
            raise AttributeError(f"a queue has no attribute {attribute!r}")
        self._open_now(self)
        return getattr(self, attribute)

    def release(self) -> None:
        """Forget the storage after the app was closed. The next use binds the queue to the storage of that time."""
        name, open_now = self._app_name, self._open_now
        vars(self).clear()
        self._app_name, self._open_now = name, open_now

    @override
    async def close(self) -> None:
        if self.is_bound:
            await super().close()

    @override
    def _after_fork(self) -> object:
        return super()._after_fork() if self.is_bound else None
