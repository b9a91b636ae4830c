"""The instructions of the server for failure groups and histories, for docs/reports/costs.md. Needs callgrind.

`python -m benchmarks.failure_costs` counts them again and replaces their table in the page.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Final

from glidemq_async.functions.bulk import BulkChange, ChangeStep
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import RequestChannel
from glidemq_async.functions.outcomes import Failed, Outcome, Retry
from glidemq_async.options.job_options import JobOptions
from glidemq_async.storage.redis.connections import Endpoint
from glidemq_async.storage.redis.library import Library
from glidemq_async.storage.redis.standalone import RedisStorage
from glidemq_async.stored.failure import Failure

from .instructions import (
    CALL_SECONDS,
    LEASE_MS,
    CountedServer,
    InstructionClient,
    Kind,
    counted_server,
    lacking,
    without_time_limit,
)
from .report import ROOT
from .tables import markdown

PAGE: Final = ROOT / "docs" / "reports" / "costs.md"
HEAD: Final = """## Failure groups and histories

The instructions of the server for one job in a batch of 100, counted by callgrind. A job that completes at its first
attempt executes none of this code. The last row has the same work with and without groups, because an operation forms
no group."""
BEGIN, END = "<!-- failures: written by benchmarks.failure_costs -->\n", "<!-- end -->"
JOBS: Final = 400
BATCH: Final = 100
WARM_UP: Final = 400
_ERROR: Final = Failure("TimeoutError", "no reply from smtp.example.com", "  File ...\n" * 10, "app/mail.py:send:41")
_PACKED: Final = _ERROR.packed("job", "2026.11.3")
OUTCOMES: Final[dict[str, Outcome]] = {
    "a job that fails for good": Failed(_PACKED, "unrecoverable", _ERROR.reason()),
    "an attempt that fails and is retried": Retry(_PACKED, 60.0, _ERROR.reason()),
}
NOT_GROUPED: Final = (
    "function failure_groups.attempt(base, id, name, payload, reason, call)\n",
    "  do return '', '' end\n",
)


def whole_steps() -> Library:
    """Return the library without time limits: neither its calls nor its steps of bulk changes end early."""
    text, shorter = without_time_limit().text, "local ENOUGH = 0.002\n"
    assert text.count(shorter) == 1, "budget.lua has another limit of time"
    return Library(text.replace(shorter, "local ENOUGH = 1e9\n"))


def without_groups() -> Library:
    """Return the library without failure groups."""
    text, (head, body) = whole_steps().text, NOT_GROUPED
    assert text.count(head) == 1, "failure_groups.lua has another function for attempts"
    return Library(text.replace(head, head + body))


class Costs:
    """Counts on one server, with one text of the library."""

    def __init__(self, server: CountedServer, functions: Functions, name: str) -> None:
        self._server = server
        self._functions = functions
        self._name = name
        self._client = InstructionClient(functions, Kind(JobOptions(), BATCH), RequestChannel("adder"))
        self._channel = RequestChannel("worker")

    async def of_outcome(self, outcome: Outcome) -> int:
        """Return the instructions of the settle calls of a job with this outcome."""
        await self._settle(WARM_UP, outcome)
        return await self._settle(JOBS, outcome, counted=True)

    async def of_retry(self, actor: str) -> int:
        """Return the instructions of a step of a bulk operation for one failed job."""
        await self._settle(JOBS, OUTCOMES["a job that fails for good"])
        cursor, ids = "", list[str]()
        while len(ids) < JOBS:
            cursor, some = await self._functions.reading.list_jobs("failed", cursor, BATCH)
            ids += some
        step = ChangeStep(f"operation{actor}", "retry", actor=actor, note="operation 1a2b3c: fixed" if actor else "")
        self._server.start_counting()
        done = 0
        while done < JOBS:
            changes = [BulkChange(job_id) for job_id in ids[done : min(done + BATCH, JOBS)]]
            reply = await self._functions.bulk.change(step, done + 1, changes)
            assert set(reply.statuses) == {"ok"}
            done += len(reply.statuses)
        found = self._server.stop_counting(self._name) // JOBS
        await self._functions.queue.open(None)
        return found

    async def _settle(self, jobs: int, outcome: Outcome, *, counted: bool = False) -> int:
        await self._client.add(jobs)
        total = 0
        for _ in range(jobs // BATCH):
            settle = self._functions.settle
            claim = settle.request(self._channel, "worker", BATCH, LEASE_MS, subscribed=True, ran_ms=(0, 0))
            claimed = (await settle.send(claim)).jobs
            assert len(claimed) == BATCH, f"claimed {len(claimed)} jobs"
            request = settle.request(self._channel, "worker", 0, LEASE_MS, subscribed=True, ran_ms=(BATCH, 0))
            for job in claimed:
                request.settle(job.id, job.entry, None, outcome)
            if counted:
                self._server.start_counting()
            await settle.send(request)
            if counted:
                total += self._server.stop_counting(self._name)
        return total // jobs


async def count(server: CountedServer, library: Library, history: int) -> dict[str, int]:
    """Return the instructions per job of each kind, with this number of bytes for histories."""
    found: dict[str, int] = {}
    async with RedisStorage(Endpoint("127.0.0.1", server.port), timeout=CALL_SECONDS, library=library) as storage:
        for number, (name, outcome) in enumerate(OUTCOMES.items()):
            functions = Functions(storage, f"bench:{{{number}}}")
            await functions.queue.open(None)
            await functions.job_history.set_bytes(history)
            found[name] = await Costs(server, functions, "settle").of_outcome(outcome)
        functions = Functions(storage, "bench:{retry}")
        await functions.queue.open(None)
        await functions.job_history.set_bytes(history)
        found["a failed job that a bulk operation retries"] = await Costs(server, functions, "retry").of_retry(
            "ada (cli)"
        )
    return found


def table(columns: Sequence[dict[str, int]]) -> str:
    """Return the table of the page. The columns add groups, and then histories."""
    rows = [["instructions of the server", "without both", "with groups", "with groups and history"]]
    rows += [[name, *(f"{column[name]:,}" for column in columns)] for name in columns[0]]
    return markdown(rows)


def measured() -> str:
    """Return the table of a new count. Each column has a server of its own."""
    makes: list[tuple[Callable[[], Library], int]] = [
        (without_groups, 0),
        (whole_steps, 0),
        (whole_steps, 8_192),
    ]
    columns: list[dict[str, int]] = []
    for make, history in makes:
        with tempfile.TemporaryDirectory(prefix="glidemq-costs-") as directory, counted_server(directory) as server:
            columns.append(asyncio.run(count(server, make(), history)))
    return table(columns)


def with_table(page: str, text: str) -> str:
    """Return the page with another table."""
    marked = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), re.DOTALL)
    return marked.sub(lambda _: f"{BEGIN}{text}\n{END}", page)


def table_of(page: str) -> str:
    """Return the table that a page has."""
    return page.partition(BEGIN)[2].partition(END)[0].rstrip("\n")


def main() -> int:
    """Count, and write the table."""
    reason = lacking()
    if reason:
        print(f"!!! {reason}: the instructions were NOT counted", file=sys.stderr)
        return 0
    text = measured()
    print(text)
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
