"""The example agent continues in another worker process when its worker is killed, and repeats no recorded step."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from glidemq_async import RecordedStep, RunHandle
from tests.cli.commands import COMMAND
from tests.support.helpers import soon
from tests.support.servers import standalone

EXAMPLES = Path(__file__).parents[2] / "examples"
KILLS = 3
STEPS = ["ask_model"] * 3 + ["look_up"] * 3 + ["send_report"]
ANSWER = "I have sent: Lisbon has 545,000 people; Porto has 232,000 people; Atlantis: not found (KeyError)"

pytestmark = pytest.mark.skipif(
    not EXAMPLES.exists(), reason="the examples are not next to the tests; they run from a checkout"
)


@asynccontextmanager
async def worker(url: str, output: Path) -> AsyncGenerator[None]:
    """Run a worker process of the example, and kill it with SIGKILL at the end."""
    options = ("--app-dir", str(EXAMPLES), "--lock-duration", "1", "--max-stalled", "100")
    with output.open("w") as file:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "worker", *options, "agent:mq"),
            env={**os.environ, "GLIDEMQ_URL": url},
            stdout=file,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def recorded(run: RunHandle[str], least: int) -> None:
    """Wait until a run has this number of recorded steps."""
    while len(await run.steps()) < least:  # noqa: ASYNC110 - another process records them
        await asyncio.sleep(0.01)


def line_of(step: RecordedStep) -> str:
    """Return the line that the function of a step prints."""
    argument = step.arguments[0][0]
    if step.name == "ask_model":
        return f"model: {len(argument)} messages"
    return f"look up {argument['argument']}" if step.name == "look_up" else "send the report"


def executed(output: Path, steps: list[RecordedStep]) -> set[str]:
    """Return the lines of these steps that a worker has printed."""
    return {line_of(step) for step in steps} & {*output.read_text().splitlines()}


def identity(step: RecordedStep) -> tuple[str, object, object, int]:
    return step.name, step.arguments, step.result, step.run


@pytest.mark.timeout(60)
async def test_a_killed_agent_continues_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    example = importlib.import_module("agent")
    async with standalone() as server:
        monkeypatch.setenv("GLIDEMQ_URL", server.url)
        async with example.mq:
            run: RunHandle[str] = await example.agent.start("How many people live in Lisbon, Porto and Atlantis?")
            before: list[RecordedStep] = []
            for kill in range(KILLS):
                output = tmp_path / f"{kill}"
                async with worker(server.url, output):
                    await soon(recorded(run, len(before) + 1), 20)
                assert executed(output, before) == set()
                before = await run.steps()
                assert await run.state() == "active"

            async with worker(server.url, tmp_path / "last"):
                assert await run.result(timeout=30) == ANSWER
            assert executed(tmp_path / "last", before) == set()
            steps = await run.steps()
            assert [*map(identity, steps[: len(before)])] == [*map(identity, before)]
            # A second call of the model would have chosen calls with other ids, which would be further steps.
            assert sorted(step.name for step in steps) == STEPS
            assert len({step.run for step in steps}) >= KILLS
            assert await example.mq.queue("agents").check() == []
