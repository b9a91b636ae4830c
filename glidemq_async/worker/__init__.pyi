from glidemq_async.options.batch import BatchOptions as BatchOptions
from glidemq_async.worker.broadcast_worker import BroadcastWorker as BroadcastWorker
from glidemq_async.worker.execution import Execution as Execution
from glidemq_async.worker.health import Health as Health
from glidemq_async.worker.health_server import HealthServer as HealthServer
from glidemq_async.worker.options import WorkerOptions as WorkerOptions
from glidemq_async.worker.pool import WorkerPool as WorkerPool
from glidemq_async.worker.worker import Worker as Worker
