"""Typed tasks: an app of functions whose calls are added as jobs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glidemq_async.tasks.app import GlideMQ
    from glidemq_async.tasks.app_worker import AppWorker
    from glidemq_async.tasks.dependencies import Depends
    from glidemq_async.tasks.middleware import Middleware
    from glidemq_async.tasks.sync_tasks import SyncAdds, SyncApp, SyncTask
    from glidemq_async.tasks.task import BoundTask, Task
else:
    from glidemq_async import lazy

    __getattr__, __dir__ = lazy.attributes(
        __name__,
        {
            ".app": "GlideMQ",
            ".app_worker": "AppWorker",
            ".dependencies": "Depends",
            ".middleware": "Middleware",
            ".sync_tasks": "SyncAdds SyncApp SyncTask",
            ".task": "BoundTask Task",
        },
    )

__all__ = ["AppWorker", "BoundTask", "Depends", "GlideMQ", "Middleware", "SyncAdds", "SyncApp", "SyncTask", "Task"]
