"""Run code around every add and every run: a tenant in the headers, and a record of failures."""

import asyncio
from contextvars import ContextVar
from typing import Any

from glidemq_async import GlideMQ, Job, JobFailed, JobOptions, Middleware
from glidemq_async.options.job_options import merge
from glidemq_async.tasks.task import AnyTask

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class Tenants(Middleware):
    async def before_add(self, task: AnyTask, options: JobOptions) -> JobOptions:
        return merge(options, {"headers": {**options.headers, "tenant": tenant.get()}})

    async def before_run(self, task: AnyTask, job: Job[Any, Any]) -> None:
        tenant.set(job.headers["tenant"])


class Record(Middleware):
    async def after_run(self, task: AnyTask, job: Job[Any, Any], result: Any) -> None:
        print(f"{task.name} of {tenant.get()} returned {result!r}")

    async def on_failure(self, task: AnyTask, job: Job[Any, Any], error: BaseException) -> None:
        print(f"{task.name} of {tenant.get()} failed: {error!r}")


mq = GlideMQ("memory://", middleware=[Tenants(), Record()])


@mq.task
def divide(a: int, b: int) -> float:
    # A context variable that a middleware sets reaches the thread of a plain function.
    return a / b if tenant.get() != "nobody" else 0.0


async def main() -> None:
    async with mq, mq.worker():
        tenant.set("ada")
        await (await divide.add(1, 2)).result(timeout=10)
        tenant.set("bob")
        try:
            await (await divide.add(1, 0)).result(timeout=10)
        except JobFailed as error:
            print(error)


if __name__ == "__main__":
    asyncio.run(main())
