"""The command that signals a job, or resumes a suspended one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, CommandTarget, QueueName, Reason, parse_json, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document


@with_target
def signal(
    target: CommandTarget,
    queue: QueueName,
    job_id: Annotated[str, typer.Argument(metavar="JOB_ID", help="The id of the job.")],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The name of the signal.")] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="JSON", help="The payload of the signal.")] = None,
    ttl: Annotated[
        float | None, typer.Option("--ttl", min=0.001, help="Seconds after which the signal is forgotten.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume a suspended job without a signal.")] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait", min=0.001, help="Wait up to this many seconds for the reply of the workflow, and print it."
        ),
    ] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Send a signal to a job, or resume a suspended job with --resume.

    A job that waits for the signal runs again. In any other state the job receives the signal later.
    """
    if resume and (name or data or ttl or wait):
        raise typer.BadParameter("it takes no NAME, --data, --ttl or --wait", param_hint="--resume")
    if not resume and not name:
        raise typer.BadParameter("name the signal, or use --resume", param_hint="NAME")
    payload = None if data is None else parse_json("--data", data)

    from glidemq_async.cli import targets

    async def do() -> Document:
        async with targets.open_change(queue, target) as (ops, opened):
            if name is None:
                await ops.resume_job(queue, job_id, reason=reason)
                return {"queue": queue, "id": job_id, "resumed": True}
            if wait is not None:
                async with ops.changing_job("signal", queue, job_id, reason, name=name):
                    reply = await opened.send_and_wait(job_id, name, payload, timeout=wait, ttl=ttl)
                return {"queue": queue, "id": job_id, "reply": reply}
            resumed = await ops.signal(queue, job_id, name, payload, ttl=ttl, reason=reason)
            return {"queue": queue, "id": job_id, "resumed": resumed}

    answer(do(), _show, as_json=as_json)


def _show(done: Document) -> None:
    if "reply" in done:
        from glidemq_async.cli.output import to_json

        typer.echo(to_json(done["reply"]))
    else:
        typer.echo("resumed" if done["resumed"] else "buffered")
