"""Code without an event loop, such as a Django view: `queue.sync` has the same methods, and waits."""

import asyncio
import threading

from glidemq_async import Job, Queue, Worker

# Made once, when the module is imported. Connections are opened by the first call, in each process for itself.
emails: Queue[dict[str, str], str] = Queue("emails", "memory://")


def view(address: str) -> str:
    """A view: called in whatever thread the server likes."""
    job = emails.sync.add("welcome", {"to": address}, job_id=f"welcome-{address}")
    return job.outcome


def send(job: Job[dict[str, str], str]) -> str:
    """A plain function: it runs in a thread of the worker, and reaches its job through `.sync` too."""
    job.sync.log("sending")
    return f"sent to {job.data['to']}"


async def work(stop: threading.Event) -> None:
    """What a worker process does. Here it is a thread, to share what is in memory: another loop, so a clone."""
    async with emails.storage.clone() as storage, Worker("emails", send, storage, handle_signals=False):
        await asyncio.to_thread(stop.wait)


if __name__ == "__main__":
    print(view("ada@example.com"), view("ada@example.com"))
    stop = threading.Event()
    worker = threading.Thread(target=asyncio.run, args=[work(stop)])
    worker.start()
    job = emails.sync.get_job("welcome-ada@example.com")
    assert job is not None
    print("result:", job.sync.result(timeout=10))
    print("log:", emails.sync.get_job_logs(job.id))
    stop.set()
    worker.join()
    emails.sync.close()
