"""Every example runs as a separate program and prints the expected lines."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from glidemq_async.executors.sandbox import landlock

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
EXPECTED = {
    "serverless": ["order-1: added", "order-2: added", "order-2: duplicate", "shipped tea", "shipped milk"],
    "sync": ["added duplicate", "result: sent to ada@example.com", "log: ['sending']"],
    "cleaning": [
        "waiting jobs removed: 1000",
        "delayed ones too: 1",
        "run again: 3",
        "results: [0, 1, 2]",
        "results of more than an hour ago: []",
        "results of any age: ['1002', '1003', '1004']",
        "running: 1",
        "removed with the queue: 1",
    ],
    "inspecting": [
        "before: {'waiting': 3, 'delayed': 1}",
        "worker: converter with 2 slots",
        "1 photo of tenant 7",
        "2 photo of tenant 8",
        "3 failed: ValueError: not an image",
        "after: {'delayed': 1, 'completed': 2, 'failed': 1}",
        "failed: 3 ValueError: not an image",
        "completed in the last 24 hours: 2",
    ],
    "flows": ["words: 5", "failed because of broken totals/3/2: ValueError: no text", "twice: 4"],
    "workflow": [
        "pay order-1 1000",
        "reserve book",
        "reserve pen",
        "ship order-1",
        "parcel of order-1",
        "pay order-2 1000",
        "reserve book",
        "reserve pen",
        "refund order-2 1000",
        "refunded because of ConnectionError: no carrier",
        "pay completed, ship failed, refund completed",
    ],
    "agent": [
        "model: 1 messages",
        "look up Lisbon",
        "look up Porto",
        "look up Atlantis",
        "look up Atlantis",
        "model: 5 messages",
        "send the report",
        "model: 7 messages",
        "I have sent: Lisbon has 545,000 people; Porto has 232,000 people; Atlantis: not found (KeyError)",
        "7 steps: ask_model, look_up, send_report",
    ],
    "map_reduce": ["100,000 rows: 4,999,950,000"],
    "order": [
        "small: 10.00 charged",
        "small: parcel small",
        "large: 900.00 charged",
        "payment large refunded",
        "large: the parcel is too heavy, refunded",
        "doubtful: 20.00 charged",
        "payment doubtful refunded",
        "doubtful: rejected by eve (unknown address), refunded",
    ],
    "topics": [
        "invoice for order 1",
        "audit: order.paid.eu 1",
        "audit: order.sent.eu 1",
        "invoice for order 1",
        "audit: 2 jobs, 0 unread",
        "invoices: 2 jobs, 0 unread",
    ],
    "batches": ["inserting [1, 2, 4]", "stored 1", "stored 2", "failed: a negative row", "stored 4"],
    "cached_results": ["measuring short", "5", "5", "measuring a long text", "11", "11", "measuring short", "5 11"],
    "bulk_operation": ["failed: 2", "done: 2 retried"],
    "dead_letters": [
        "welcome of emails: unrecoverable, UnrecoverableError: no address for grace",
        "replayed: 1",
        "sent to ada@example.com",
        "sent to grace@example.com",
    ],
    "deduplication": ["duplicate True", "added", "duplicate", "indexed draft", "completed indexed page 8"],
    "delays": ["delayed 2", "tea", "bath"],
    "encryption": ["stored: 59 bytes", "dear Ada", "dear Grace", "CodecError", "malformed after 1 run"],
    "key_limits": [
        "the third start waits for the window: True",
        "16 tokens of 10 take a while: True",
        "paused: ['down.example']",
    ],
    "keys": [
        "ada: booking 0, while 0 others of this account ran",
        "bob: booking 2, while 0 others of this account ran",
        "ada: booking 1, while 0 others of this account ran",
    ],
    "lifo": ["page 3", "page 2", "page 1"],
    "movable_clock": [
        "now: []",
        "ten minutes later: ['welcome: ada@example.com']",
        "a week later: ['how is it going: ada@example.com']",
    ],
    "permissions": [
        "write_result: written",
        "read_secret: PermissionDenied",
        "connect: PermissionDenied",
        "start_program: PermissionDenied",
        "take_memory: MemoryError",
    ],
    "priorities": ["password reset", "monthly report", "invoice", "newsletter"],
    "queue_limits": ["highest number of running jobs: 3", "eight starts at four in 0.2 s: True"],
    "rate_limited": ["Oak Street 1 after 0 failures", "Elm Street 2 after 0 failures"],
    "quickstart": ["[0, 1, 4, 9, 16]"],
    "request_reply": ["3.142857142857143", "ZeroDivisionError"],
    "retries": ["page after 3 runs", "there is no such page - runs: 1"],
    "revoking": ["stopped because: revoked", "failed: revoked"],
    "schedulers": [
        *["pulse beat"] * 3,
        "fired: 3",
        "nightly totals",
        "triggered: totals",
        "next: 2026-03-29 01:00:00+00:00",
        "all: ['nightly', 'pulse']",
        "removed: True",
    ],
    "telemetry": [
        "info orders ship 1 shipping a book",
        'glidemq_jobs_added_total{job="ship",outcome="added",queue="orders"} 1.0',
        "send orders -> process orders",
        "one trace: True",
    ],
    "tasks": [
        "hello, ada@example.com (job 1)",
        "hi, a@x (job 3)",
        "bye, b@x (job 4)",
        "7 ['tea', 'bread', '2 lines']",
        "task 'send_email': argument 'to' must be str, got 3",
        "['0 lines']",
    ],
    "cron_task": [
        *["beat"] * 3,
        "nightly report of Asturias",
        "nightly fired: 0",
        "pulse fired: 3",
        "next: 2026-06-01 01:00:00+00:00",
    ],
    "dependencies": [
        "worker starts with 1 task",
        "connect to db://prod",
        "commit",
        "commit",
        "disconnect",
        "worker has stopped",
        "user 1 is Ada, by a session of pool",
        "user 2 is Bob, by a session of pool",
        "worker starts with 1 task",
        "worker has stopped",
        "user 3 is Eve, by a fake",
        "user 4 is Dan, by a mock",
    ],
    "middleware": [
        "divide of ada returned 0.5",
        "divide of bob failed: ZeroDivisionError('division by zero')",
        "ZeroDivisionError: division by zero",
    ],
    "subprocess_executor": [
        "ada.webp",
        "ExecutorError: the process of the job was killed by SIGABRT before the job had ended",
        "TimeoutError: the run took longer than its timeout of 2 s",
        "['converting ada.png']",
    ],
    "approval": [
        "suspended: a piano costs 2500.00",
        "a book: shipped",
        "a piano: approved by ada",
        "a boat: rejected by bob",
    ],
    "threads": ["2 files, ['copied a.txt', 'copied b.txt']", "the progress changed", "the progress changed"],
    "watching": ["added", "delayed", "waiting", "active", "progress", "completed", "['working']"],
}

pytestmark = pytest.mark.skipif(
    not EXAMPLES.exists(), reason="the examples are not next to the tests; they run from a checkout"
)


def run(*command: str, env: dict[str, str] | None = None) -> list[str]:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=30, check=False, env=env)
    # A failed job is logged with its traceback, and some examples show failures.
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_example_has_its_expected_output() -> None:
    found = {path.stem for path in EXAMPLES.glob("*.py")}
    # Other tests run the examples of Spark, and the services: test_services.py and integrations/test_streams.py.
    served = {name for name in found if name.endswith("_service")} | {"streamed_answer"}
    assert {name for name in found if not name.startswith("spark_")} - served == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_example_prints_its_lines(name: str) -> None:
    if name == "permissions" and not landlock.version():
        pytest.skip("the kernel has no Landlock (Linux 5.13)")
    assert run("-W", "error", str(EXAMPLES / f"{name}.py")) == EXPECTED[name]


def test_the_first_example_of_the_page_about_queues_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "queues.md").read_text(), re.DOTALL)
    program = tmp_path / "first.py"
    program.write_text(blocks[0])
    env = {"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(tmp_path / "state"), "GLIDEMQ_LINGER": "1"}
    assert run("-W", "error", str(program), env=env) == ["welcome, ada@example.com"]
