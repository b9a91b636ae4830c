"""Running jobs: the worker, its claim loop, its leases, and the pool that shares one shutdown."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glidemq_async.worker.batches import BatchOptions
    from glidemq_async.worker.execution import Execution
    from glidemq_async.worker.health import Health
    from glidemq_async.worker.health_server import HealthServer
    from glidemq_async.worker.pool import WorkerPool
    from glidemq_async.worker.worker import Worker
else:
    from glidemq_async import lazy

    __getattr__, __dir__ = lazy.attributes(
        __name__,
        {
            ".batches": "BatchOptions",
            ".execution": "Execution",
            ".health": "Health",
            ".health_server": "HealthServer",
            ".pool": "WorkerPool",
            ".worker": "Worker",
        },
    )

__all__ = ["BatchOptions", "Execution", "Health", "HealthServer", "Worker", "WorkerPool"]
