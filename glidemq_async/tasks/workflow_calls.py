"""Calls of tasks in workflows, which become children of the run's job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from glidemq_async.errors import JobFailed
from glidemq_async.flows.nodes import FlowJob
from glidemq_async.flows.producer import App, FlowProducer
from glidemq_async.jobs.context import current_job
from glidemq_async.jobs.job import Job, run_of
from glidemq_async.options.job_options import merge
from glidemq_async.queues.internals import client_of
from glidemq_async.stored.failure import stored_failure
from glidemq_async.stored.names import QueueKeys
from glidemq_async.tasks.task import FlowCall
from glidemq_async.workflows.child_waits import End
from glidemq_async.workflows.run import required_run


@dataclass(frozen=True, slots=True)
class AppChildren:
    """The children of one job, in the queues of an app. `flow_of` returns the jobs of a call."""

    app: App
    job: Job[Any, Any]
    flow_of: Callable[[FlowCall[Any]], Awaitable[FlowJob]]

    async def add(self, calls: Sequence[tuple[FlowCall[Any], str]]) -> None:
        """Add these children to the job; see `Children.add`. Raises the errors of `FlowProducer.add_children`."""
        flows = [await self.flow_of(_with_id(call, child_id)) for call, child_id in calls]
        await FlowProducer(self.app).add_children(self.job, flows)

    async def known(self) -> tuple[Mapping[str, End | None], int]:
        """Return the children that the job has; see `Children.known`."""
        client, _ = run_of(self.job)
        present = await client.functions.children.read_present(self.job.id)
        found: dict[str, End | None] = {}
        for row in present.rows:
            if row.ending == "c":
                queue = client_of(self.app.queue(QueueKeys.of(row.base).queue))
                found[row.id] = End(queue.decode(row.value, "result", row.name, row.id))
            else:
                found[row.id] = End(reason=row.value.decode(errors="replace")) if row.ending else None
        return found, present.ends

    async def end_of(self, call: FlowCall[Any], child_id: str) -> End:
        """Return how a child has ended; see `Children.end_of`."""
        client = client_of(self.app.queue(call.definition.queue))
        results = client.results
        await results.listen()
        ended = await results.wait(child_id, results.watch(child_id, asked=False), asked=False)
        if ended.state == "failed":
            return End(reason=str(stored_failure(ended.payload, ended.reason)))
        return End(client.decode(ended.payload, "result", call.definition.name, child_id))


async def call_child(
    app: App, call: FlowCall[Any], key: str | None, flow_of: Callable[[FlowCall[Any]], Awaitable[FlowJob]]
) -> Any:
    """Make a call as a step of the present run, and return its result. Raises StepFailed."""
    definition = call.definition
    run = required_run(f"the call of task {definition.name!r}")
    children = AppChildren(app, current_job(), flow_of)

    async def execute() -> object:
        return await run.children.result(call, children)

    result = await run.ask(f"call {definition.name}", _arguments(call), execute, key=key, recorded_failures=JobFailed)
    return definition.arguments.read_result(result) if definition.reads_result else result


def _arguments(call: FlowCall[Any]) -> list[Any]:
    """Return the values that identify a call: its arguments, and the calls before it."""
    data = call.data
    before = [[child.definition.name, *_arguments(child)] for child in call.children]
    return [data.get("a", data.get("rest", [])), dict(sorted(data["k"].items())), *([before] if before else [])]


def _with_id(call: FlowCall[Any], child_id: str) -> FlowCall[Any]:
    return replace(call, job_options=merge(call.job_options, {"job_id": child_id}), policy="collect")
