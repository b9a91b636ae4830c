"""Replies of workflows to signals whose senders wait."""

from __future__ import annotations

from glidemq_async.jobs.replies import REPLY
from glidemq_async.jobs.signal_types import payload_of, signal_type
from glidemq_async.jobs.signals import Signal
from glidemq_async.workflows.run import required_run


async def reply(signal: object, value: object = None) -> None:
    """Reply to a signal that this run has received. `run.send_and_wait` returns `value`.

    `value` is a payload, or an instance of a class with `@mq.signal`. The reply is recorded as a step, so later runs of
    the job send the same one: the first reply to a signal counts. Does nothing if the sender does not wait.

    Raises RuntimeError outside of a workflow, TypeError for an object that is no signal, SerializationError,
    PayloadTooLarge, and the errors of a step.
    """
    run = required_run("workflows.reply")
    if not isinstance(signal, Signal):
        signal_type(type(signal))
    question = run.question_of(signal)
    if question is None:
        return

    async def payload() -> object:
        return payload_of(value)

    await run.ask(REPLY, [], payload, key=question)
