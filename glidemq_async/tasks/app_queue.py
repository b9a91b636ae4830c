"""The queues of an app. Each opens the storage of the app with its first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typing_extensions import override

from glidemq_async.queues.queue import Queue
from glidemq_async.stored.names import check_name


# A module declares `mq.queue("reports", limits=...)` while it is imported, before the program has chosen a storage. So
# the initialization of such a queue waits until one of its attributes is read for the first time. Until then its class
# is UnboundQueue, whose `__getattr__` notices the read. A class with `__getattr__` makes each read of an attribute
# slower, so a queue in use has the class AppQueue, which has none.
class AppQueue(Queue[Any, Any]):
    """A queue of an app. It opens the storage of the app with its first use, also after the app was closed."""

    def __init__(self, name: str, initialize: Callable[[AppQueue], None]) -> None:
        self._app_name = check_name("queue name", name)
        self._initialize = initialize
        _become(UnboundQueue, self)

    @property
    @override
    def name(self) -> str:
        return self._app_name

    def bind(self) -> None:
        """Use the present storage of the app from now on."""
        _become(AppQueue, self)
        try:
            self._initialize(self)
        except BaseException:
            _become(UnboundQueue, self)
            raise

    def release(self) -> None:
        """Forget the storage after the app was closed. The next use binds the queue to the storage of that time."""
        name, initialize = self._app_name, self._initialize
        vars(self).clear()
        self._app_name, self._initialize = name, initialize
        _become(UnboundQueue, self)


class UnboundQueue(AppQueue):
    """A queue of an app before its first use."""

    def __getattr__(self, attribute: str) -> Any:
        # Copies and inspections ask for special methods of objects that have no state yet.
        if attribute.startswith("__") or attribute in ("_initialize", "_app_name"):
            raise AttributeError(f"a queue has no attribute {attribute!r}")
        self.bind()
        return getattr(self, attribute)

    @override
    def __repr__(self) -> str:
        return f"<Queue {self._app_name!r} of an app>"

    @override
    async def close(self) -> None:
        """Do nothing: the queue has opened nothing."""

    @override
    def _after_fork(self) -> object:
        return None


def _become(kind: type[AppQueue], queue: AppQueue) -> None:
    queue.__class__ = kind
