"""Run code around every add and every run: a tenant in the headers, and messages about outcomes."""

import asyncio
from contextvars import ContextVar
from typing import Any

from glidemq_async import GlideMQ, Job, JobFailed, JobOptions, Middleware, Task

AnyTask = Task[..., Any]
tenant: ContextVar[str] = ContextVar("tenant", default="unknown")


class Tenants(Middleware):
    async def before_add(self, task: AnyTask, options: JobOptions) -> JobOptions:
        return options.with_headers({**options.headers, "tenant": tenant.get()})

    async def before_run(self, task: AnyTask, job: Job[Any, Any]) -> None:
        tenant.set(job.headers["tenant"])


class PrintOutcomes(Middleware):
    async def after_run(self, task: AnyTask, job: Job[Any, Any], result: Any) -> None:
        print(f"{task.name} of {tenant.get()} returned {result!r}")

    async def on_failure(self, task: AnyTask, job: Job[Any, Any], error: BaseException) -> None:
        print(f"{task.name} of {tenant.get()} failed: {error!r}")


mq = GlideMQ("memory://", middleware=[Tenants(), PrintOutcomes()])


@mq.task
def divide(a: int, b: int) -> float:
    return a / b


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
