"""An agent whose finished steps are not repeated when its worker is killed.

A model chooses tools until it has an answer. Each call of the model and of a tool is a step, so its result is recorded.
`python examples/agent.py` runs the agent in one process. To kill its worker, use two terminals:

    glidemq worker --app-dir examples --lock-duration 2 agent:mq
    python examples/agent.py ask

Kill the worker with `kill -9` while it prints, and start it again. It continues after the last recorded step. Both use
$GLIDEMQ_URL, or the embedded server if it is not set.
"""

import asyncio
import sys
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from glidemq_async import GlideMQ, StepFailed, UnrecoverableError

mq = GlideMQ(queue="agents")
MOST_TURNS = 10
SECONDS = 0.2
POPULATIONS = {"Lisbon": 545_000, "Porto": 232_000}


@dataclass
class ToolCall:
    id: str
    tool: str
    argument: str


@dataclass
class Message:
    role: str
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    call_id: str = ""


def chosen(tool: str, argument: str) -> ToolCall:
    """Return a call with a random id, as the models of all vendors do: no second answer is equal to the first one."""
    return ToolCall(f"call_{uuid.uuid4().hex[:8]}", tool, argument)


@mq.step(attempts=3, timeout=60)
async def ask_model(messages: list[Message]) -> Message:
    """Replace this function with a call of your model."""
    print(f"model: {len(messages)} messages", flush=True)
    await asyncio.sleep(SECONDS)
    found = [message.text for message in messages if message.role == "tool"]
    if not found:
        cities = ("Lisbon", "Porto", "Atlantis")
        return Message("model", "I look the cities up.", [chosen("look_up", city) for city in cities])
    if len(found) == len(POPULATIONS) + 1:
        return Message("model", "I send the report.", [chosen("send_report", "; ".join(found))])
    return Message("model", f"I have sent: {'; '.join(found[:-1])}")


@mq.step(attempts=2)
async def look_up(call: ToolCall) -> str:
    print(f"look up {call.argument}", flush=True)
    await asyncio.sleep(SECONDS)
    return f"{call.argument} has {POPULATIONS[call.argument]:,} people"


@mq.step
async def send_report(call: ToolCall) -> str:
    # A worker may die between this effect and its record, and then the step is repeated. Pass `call.id` to the receiver
    # as idempotency key: it was recorded with the answer of the model, so it is the same in the repetition.
    print("send the report", flush=True)
    await asyncio.sleep(SECONDS)
    return "sent"


TOOLS: dict[str, Callable[[ToolCall], Awaitable[str]]] = {"look_up": look_up, "send_report": send_report}


async def use(call: ToolCall) -> Message:
    """Run a tool. The model reads a failure as it reads a result, and can choose another tool."""
    try:
        text = await TOOLS[call.tool](call) if call.tool in TOOLS else f"unknown tool {call.tool}"
    except StepFailed as failure:
        text = f"{call.argument}: not found ({failure.error_type})"
    return Message("tool", text, call_id=call.id)


@mq.workflow(attempts=3)
async def agent(question: str) -> str:
    messages = [Message("user", question)]
    for _ in range(MOST_TURNS):
        answer = await ask_model(messages)
        if not answer.calls:
            return answer.text
        messages = [*messages, answer, *await asyncio.gather(*(use(call) for call in answer.calls))]
    raise UnrecoverableError(f"no answer after {MOST_TURNS} turns")


async def ask(question: str) -> None:
    """Start a run of the agent, and print its answer and its steps."""
    run = await agent.start(question)
    print(await run.result(timeout=300))
    steps = await run.steps()
    print(f"{len(steps)} steps: {', '.join(sorted({step.name for step in steps}))}")


async def main(question: str = "How many people live in Lisbon, Porto and Atlantis?") -> None:
    """Ask the agent. With the word `ask`, the worker is another process."""
    async with mq:
        if sys.argv[1:] == ["ask"]:
            await ask(question)
        else:
            async with mq.worker():
                await ask(question)


if __name__ == "__main__":
    asyncio.run(main())
