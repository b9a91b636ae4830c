"""Running jobs: the worker, its claim loop, its leases, and the pool that shares one shutdown."""

from glidemq_async.worker.batches import BatchOptions
from glidemq_async.worker.execution import Execution
from glidemq_async.worker.pool import WorkerPool
from glidemq_async.worker.worker import Worker

__all__ = ["BatchOptions", "Execution", "Worker", "WorkerPool"]
