"""Use tasks without an event loop, for example in a Django view: `task.sync` and `queue.sync` have plain methods.

The worker is another process: `glidemq worker --app-dir examples sync:mq`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from glidemq_async import GlideMQ, current_job

# Created once at import. The first call in each process opens the connections, to $GLIDEMQ_URL.
mq = GlideMQ(queue="emails")


@mq.task
def welcome(to: str) -> str:
    """Run in a thread of the worker. The job has `.sync` too."""
    current_job().sync.log("sending")
    return f"sent to {to}"


def view(address: str) -> str:
    """A view, which the server may call in any thread."""
    job = welcome.options(job_id=f"welcome-{address}").sync.add(address)
    return job.outcome


def main() -> None:
    print(view("ada@example.com"), view("ada@example.com"))
    worker = ["worker", "--app-dir", str(Path(__file__).parent), "--until-empty", "--log-level", "error", "sync:mq"]
    subprocess.run([sys.executable, "-m", "glidemq_async.cli", *worker], check=True)
    print("result:", welcome.sync.result("welcome-ada@example.com", timeout=10))
    print("log:", mq.queue("emails").sync.get_job_logs("welcome-ada@example.com"))
    mq.sync.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        os.environ["GLIDEMQ_URL"] = f"file://{directory}?linger=0.2"
        main()
