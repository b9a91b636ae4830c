"""Use a queue without an event loop, for example in a Django view: `queue.sync` has plain methods."""

import asyncio
import threading

from glidemq_async import Job, Queue, Worker

# Created once at import. The first call in each process opens the connections.
emails: Queue[dict[str, str], str] = Queue("emails", "memory://")


def view(address: str) -> str:
    """A view, which the server may call in any thread."""
    job = emails.sync.add("welcome", {"to": address}, job_id=f"welcome-{address}")
    return job.outcome


def send(job: Job[dict[str, str], str]) -> str:
    """Run in a thread of the worker. The job has `.sync` too."""
    job.sync.log("sending")
    return f"sent to {job.data['to']}"


async def work(stop: threading.Event) -> None:
    """Run a worker. This example uses a thread with another loop, and therefore a clone of the storage in memory."""
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
