"""How a claimed job is run: the executor protocol and its tiers."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glidemq_async.executors.calls import FunctionCall
    from glidemq_async.executors.deadlines import waiting
    from glidemq_async.executors.inline import InlineExecutor
    from glidemq_async.executors.permissions import Permissions
    from glidemq_async.executors.protocol import Executor, Handler
    from glidemq_async.executors.subprocess import SubprocessExecutor
    from glidemq_async.executors.thread import ThreadExecutor
else:
    from glidemq_async import lazy

    __getattr__, __dir__ = lazy.attributes(
        __name__,
        {
            ".calls": "FunctionCall",
            ".deadlines": "waiting",
            ".inline": "InlineExecutor",
            ".permissions": "Permissions",
            ".protocol": "Executor Handler",
            ".subprocess": "SubprocessExecutor",
            ".thread": "ThreadExecutor",
        },
    )

__all__ = [
    "Executor",
    "FunctionCall",
    "Handler",
    "InlineExecutor",
    "Permissions",
    "SubprocessExecutor",
    "ThreadExecutor",
    "waiting",
]
