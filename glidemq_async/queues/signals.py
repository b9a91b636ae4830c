"""Signals to the jobs of a queue, and the resume of suspended jobs."""

from __future__ import annotations

from datetime import timedelta

from glidemq_async._internal.generics import Data, Result
from glidemq_async.jobs.replies import Asking, Reply, awaited_reply
from glidemq_async.jobs.reply_codes import check_reply
from glidemq_async.jobs.sent_signals import send_signal, send_typed
from glidemq_async.jobs.signals import Signal, mailbox_of
from glidemq_async.queues.base import QueuePart
from glidemq_async.stored.names import check_id


class Signals(QueuePart[Data, Result]):
    """The methods of Queue for signals and suspended jobs."""

    async def signal(
        self,
        job_id: str,
        name: str,
        data: object = None,
        *,
        ttl: float | timedelta | None = None,
        once: str | None = None,
    ) -> bool:
        """Deliver a signal to a job. Return True if it resumed the job, False if the mailbox of the job keeps it.

        A job that is suspended and waits for this name runs again with the signal. In any other state the mailbox keeps
        the signal until the job is suspended and waits for it. Signals arrive in the order in which they were sent, and
        the job receives each one once. A call that is retried after a lost reply delivers its signal once.

        - `data` is a payload of at most 64 KiB when encoded.
        - `ttl`: seconds after which a signal that the job has not received is forgotten.
        - `once`: a text, for example the id of a webhook's delivery. A job accepts one signal with it, and a further
          one raises DuplicateSignal.

        Raises JobNotFound, JobStateError if the job has ended, MailboxFull, DuplicateSignal, PayloadTooLarge,
        SerializationError, and TypeError or ValueError for a bad argument.
        """
        check_id("job_id", job_id)
        await self.connect()
        return await send_signal(self._client, job_id, name, data, ttl, once)

    async def send(
        self, job_id: str, signal: object, *, ttl: float | timedelta | None = None, once: str | None = None
    ) -> bool:
        """Send an instance of a class with `@mq.signal` to a job. Otherwise like `signal`.

        Raises TypeError for an instance of another class, or if a field has a value that its annotation does not allow.
        """
        check_id("job_id", job_id)
        await self.connect()
        return await send_typed(self._client, job_id, signal, ttl, once)

    async def send_and_wait(
        self,
        job_id: str,
        signal: object,
        data: object = None,
        *,
        timeout: float | timedelta | None = None,
        ttl: float | timedelta | None = None,
        once: str | None = None,
        reply_type: type[Reply] | None = None,
    ) -> Reply:
        """Send a signal to a job, and return the reply of its run, which calls `workflows.reply`.

        - `signal` is an instance of a class with `@mq.signal`, or the name of a signal with the payload `data`.
        - `timeout` in seconds limits the wait for the reply. The job keeps the signal and may still reply.
        - `ttl`: as for `signal`.
        - `once`: a call with the same text sends nothing, and waits for the reply to the first signal. So a call whose
          process has died or whose timeout is over can be repeated.
        - `reply_type`: a class with `@mq.signal`. Its instance is returned. Without it, the payload is.

        This also finds a reply that was recorded before the call. A run records its reply once, even if the run is
        repeated. Raises NoReply if the job ends without a reply, ResultTimeout, JobNotFound, JobStateError if the job
        has ended, MailboxFull, PayloadTooLarge, SerializationError, and TypeError or ValueError for a bad argument.
        """
        check_id("job_id", job_id)
        await self.connect()
        return await awaited_reply(self._client, job_id, Asking(signal, data, ttl, once), timeout, reply_type)

    async def resume_job(self, job_id: str) -> None:
        """Run a suspended job again without a signal. Its `resumed_by` is "operator".

        `resume()` without an id ends the pause of the queue instead. Raises JobNotFound, and JobStateError unless the
        job is suspended.
        """
        check_id("job_id", job_id)
        await self.connect()
        check_reply(await self._client.functions.signals.resume(job_id), "resume", job_id)

    async def get_mailbox(self, job_id: str) -> list[Signal]:
        """Return the signals that a job has not received yet, in their order; [] if there are none."""
        check_id("job_id", job_id)
        await self.connect()
        return await mailbox_of(self._client, job_id)
