"""Random asyncio programs of steps, and an event loop with its own time, which runs them in a random interleaving."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from typing_extensions import override

from glidemq_async import workflows
from glidemq_async.client.payload_coder import Payloads
from glidemq_async.errors import JobFailed, Suspended
from glidemq_async.functions.signals import BufferedSignal
from glidemq_async.functions.steps import StoredJournal
from glidemq_async.jobs.journal import Journal, forget_last_step
from glidemq_async.options.steps import StepLimits
from glidemq_async.payloads.codecs.chain import PayloadKind
from glidemq_async.payloads.serialization import MsgpackSerializer
from glidemq_async.stored.hand_over import StoredSignal
from glidemq_async.tasks.steps import Step, step_of
from glidemq_async.workflows.child_waits import End
from glidemq_async.workflows.clock import RunClock
from glidemq_async.workflows.run import WorkflowRun, required_run, running
from glidemq_async.workflows.waiting import Given

_START_MS: Final = 1_767_225_600_000
TURN: Final = 0.001
"""The time that one turn of the loop takes, in its own time."""
WARM: Final = 0.5
"""The part of the suspended runs whose worker keeps the function."""
LONGEST: Final = 50
"""The time in which every run must end, in the loop's own time."""
KILLED: Final = object()
"""The result of a killed run."""


class _TurnSelector(selectors.DefaultSelector):
    """Never waits: the time of the loop passes instead."""

    now = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "the program waits for nothing that will happen"
        self.now += TURN + timeout
        return []


def _buffered(signal: StoredSignal) -> BufferedSignal:
    return BufferedSignal(signal.name, signal.data, signal.sent, 0)


class TurnLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is the number of its turns, and passes at once when nothing is ready."""

    def __init__(self) -> None:
        self._turns = _TurnSelector()
        super().__init__(self._turns)

    skipped = 0
    """Milliseconds that have passed while no run was active."""

    @override
    def time(self) -> float:
        return self._turns.now

    @classmethod
    def now_ms(cls) -> int:
        """Return the time for the waits of workflows."""
        return round(asyncio.get_running_loop().time() * 1000) + cls.skipped


class Flaky(Exception):
    """The failure of a step."""


@dataclass(frozen=True, slots=True)
class Program:
    """A node of a random program."""

    kind: str
    number: int = 0
    parts: tuple[Program, ...] = ()

    def nodes(self) -> Iterator[Program]:
        """Return all nodes."""
        yield self
        for part in self.parts:
            yield from part.nodes()

    @property
    def is_timed(self) -> bool:
        """True if the program asks for other steps when they are faster."""
        return any(node.kind in ("timeout", "race") for node in self.nodes())


LEAVES: Final = ("step", "step", "step", "key", "pause", "id", "retry", "signal", "signal")


def random_program(draw: random.Random, depth: int = 3, leaves: Sequence[str] = (*LEAVES, "nap", "call")) -> Program:
    """Return a random program."""
    if depth == 0 or draw.random() < 0.25:
        kind = draw.choice(leaves)
        return Program(kind, draw.randrange(4) if kind == "step" else draw.randrange(10**6))
    kind = draw.choice(["seq", "gather", "group", "gather", "group", "workers", "timeout", "race"])
    parts = tuple(random_program(draw, depth - 1, leaves) for _ in range(draw.randrange(1, 5)))
    return Program(kind, draw.randrange(1, 12), parts)


class World:
    """The store of one job and the effects of its steps, over all of its runs."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.journal: dict[str, bytes] = {}
        self.recorded: Counter[str] = Counter()
        """How often each step was recorded."""
        self.executed = 0
        """The number of steps that have returned in a run that was alive."""
        self.lost = 0
        """The number of these steps whose run was killed before the store had recorded them."""
        self.in_flight = 0
        """The number of calls to the store without a reply."""
        self.unsent: list[StoredSignal] = []
        """The signals that nobody has sent yet."""
        self.mailbox: list[StoredSignal] = []
        """The stored forms of the signals, by their numbers."""
        self.children: dict[str, End | None] = {}
        """The children of the job by their ids, with their ends."""
        self.ends: dict[str, asyncio.Future[End]] = {}
        self.numbers: dict[str, int] = {}
        self.suspensions = 0
        self.warm: dict[int, WarmProgram] = {}
        """The function that each worker keeps of a suspended run."""
        self.taken = 0
        """The number of signals that runs have received without a suspension."""
        self.continued: Counter[str] = Counter()
        """The number of runs that have continued such a function, by the cause of their resume."""

    def write(self, program: Program) -> None:
        """Prepare one signal for each wait of a program."""
        self.unsent = [
            StoredSignal(name, MsgpackSerializer().dumps(place), _START_MS)
            for place, name in enumerate(signal_names(program))
        ]
        self.draw.shuffle(self.unsent)

    def send(self) -> None:
        """Send the next signal, if there is one."""
        if self.unsent:
            self.mailbox.append(self.unsent.pop())

    @property
    def ended(self) -> int:
        """The number of children that have ended."""
        return sum(end is not None for end in self.children.values())

    def call(self, child_id: str, number: int) -> None:
        """Add a child, which may end while the run is active. Nothing happens for one that the job has."""
        if child_id not in self.children:
            loop = asyncio.get_running_loop()
            self.children[child_id], self.ends[child_id] = None, loop.create_future()
            self.numbers[child_id] = number
            if self.draw.random() < 0.6:
                loop.call_later(TURN * self.draw.randrange(60), self.end_child, child_id)

    def end_child(self, child_id: str) -> None:
        """End a child, unless it has ended."""
        if self.children[child_id] is None:
            self.children[child_id] = end = End(self.numbers[child_id])
            self.ends[child_id].set_result(end)

    def _end_any_child(self) -> bool:
        """End a child. Return False if all have ended."""
        running = [child_id for child_id, end in self.children.items() if end is None]
        if running:
            self.end_child(self.draw.choice(running))
        return bool(running)

    def resume(self, suspended: Suspended, given: Given) -> Given:
        """Let the time pass until a suspended job is resumed. Return what its next run gets."""
        self.suspensions += 1
        if suspended.gives_back:
            self.mailbox[:0] = given.signals
        while True:
            if suspended.known_ends is not None and self.ended > suspended.known_ends:
                return Given("children", suspended.step)
            for place, one in enumerate(self.mailbox):
                if suspended.signals is None or one.name in suspended.signals:
                    return Given("signal", suspended.step, [self.mailbox.pop(place)])
            if suspended.known_ends is not None and self.draw.random() < 0.5 and self._end_any_child():
                continue
            if suspended.timeout_ms is not None and (not self.unsent or self.draw.random() < 0.5):
                TurnLoop.skipped += suspended.timeout_ms
                return Given("timeout", suspended.step)
            if not self.unsent and suspended.known_ends is not None and self._end_any_child():
                continue
            assert self.unsent, "a suspended run waits for what will never happen"
            self.send()


class RunStore:
    """The store as one run sees it. A run that was killed can write nothing more."""

    def __init__(self, world: World) -> None:
        self.payloads = Payloads("glide:{q}", None, ())
        self.world = world
        self.is_alive = True
        self.step_limits = StepLimits()

    def encode(self, value: object, kind: PayloadKind, name: str, job_id: str) -> bytes:
        return self.payloads.encode(value, kind, name, job_id)

    def decode(self, data: bytes, kind: PayloadKind, name: str, job_id: str) -> object:
        return self.payloads.decode(data, kind, name, job_id)

    async def read_steps(self, job_id: str) -> StoredJournal:
        await asyncio.sleep(TURN * self.world.draw.randrange(3))
        return StoredJournal(dict(self.world.journal), 0)

    async def read_mailbox(self, job_id: str) -> list[BufferedSignal]:
        await asyncio.sleep(TURN * self.world.draw.randrange(4))
        return [_buffered(one) for one in self.world.mailbox]

    def _take(self, signal: bytes) -> bool:
        """Take a signal out of the mailbox. Return False if it is not there."""
        for one in self.world.mailbox:
            if _buffered(one).stored() == signal:
                self.world.mailbox.remove(one)
                self.world.taken += 1
                return True
        return False

    def record_step(
        self, job_id: str, entry: str, identity: str, packed: bytes, signal: bytes = b""
    ) -> asyncio.Future[str]:
        loop = asyncio.get_running_loop()
        status: asyncio.Future[str] = loop.create_future()

        counts = self.is_alive and is_own(identity)
        self.world.in_flight += 1

        def arrive() -> None:
            self.world.in_flight -= 1
            if not self.is_alive:
                self.world.lost += counts
                status.set_result("stale")
                return
            if signal and not self._take(signal):
                status.set_result("gone")
                return
            self.world.recorded[identity] += 1
            self.world.journal[identity] = packed
            status.set_result("ok")

        loop.call_later(TURN * self.world.draw.randrange(4), arrive)
        return status


class RunChildren:
    """The children of the job as one run sees them. A call is a number, which is the result of its child."""

    def __init__(self, store: RunStore) -> None:
        self.store = store

    async def add(self, calls: Sequence[tuple[int, str]]) -> None:
        await asyncio.sleep(TURN * self.store.world.draw.randrange(4))
        if self.store.is_alive:
            for number, child_id in calls:
                self.store.world.call(child_id, number)

    async def known(self) -> tuple[Mapping[str, End | None], int]:
        await asyncio.sleep(TURN * self.store.world.draw.randrange(4))
        return dict(self.store.world.children), self.store.world.ended

    async def end_of(self, call: int, child_id: str) -> End:
        del call
        end = self.store.world.ends[child_id]
        await asyncio.wait([end])
        await asyncio.sleep(TURN * self.store.world.draw.randrange(4))
        return end.result()


class ProgramRun:
    """One run of a program."""

    def __init__(self, store: RunStore, step: Step[[str, int], Any], effect: Step[..., Any]) -> None:
        self.store = store
        self.step = step
        self.flaky = effect

    async def execute(self, node: Program) -> Any:
        """Execute a node. Return a value that does not depend on the interleaving."""
        return await getattr(self, f"_{node.kind}")(node)

    async def _step(self, node: Program) -> Any:
        return await self.step("s", node.number)

    async def _key(self, node: Program) -> Any:
        return (await self.step.with_key(str(node.number))("key", random.randrange(10**9)))[0]

    async def _pause(self, node: Program) -> None:
        await asyncio.sleep(TURN * self.store.world.draw.randrange(5))

    async def _id(self, node: Program) -> Any:
        await self.step("before", node.number)
        made = await workflows.uuid4()
        return (await self.step(f"id {made}", node.number))[1]

    async def _retry(self, node: Program) -> Any:
        while True:
            with suppress(Flaky):
                return await self.flaky("flaky", node.number)

    async def _nap(self, node: Program) -> None:
        await workflows.sleep(60 + node.number % 60, key=f"{node.number}")

    async def _signal(self, node: Program) -> Any:
        return (await workflows.receive(_name(node.number))).name

    async def _call(self, node: Program) -> Any:
        run, number = required_run("the call"), node.number % 3

        async def execute() -> object:
            return await run.children.result(number, RunChildren(self.store))

        return await run.ask("call", [number], execute, recorded_failures=JobFailed)

    async def _seq(self, node: Program) -> Any:
        return [await self.execute(part) for part in node.parts]

    async def _gather(self, node: Program) -> Any:
        return await asyncio.gather(*map(self.execute, node.parts))

    async def _group(self, node: Program) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.execute(part)) for part in node.parts]
        return [task.result() for task in tasks]

    async def _workers(self, node: Program) -> Any:
        waiting, done = [*range(node.number)], list[Any]()

        async def work() -> None:
            while waiting:
                done.append(await self.step("item", waiting.pop()))

        await asyncio.gather(*(work() for _ in node.parts))
        return sorted(done)

    async def _timeout(self, node: Program) -> Any:
        try:
            async with asyncio.timeout(TURN * node.number):
                return [await self.execute(part) for part in node.parts]
        except TimeoutError:
            return await self.step("late", node.number)

    async def _race(self, node: Program) -> Any:
        tasks = [asyncio.ensure_future(self.execute(part)) for part in node.parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def execute(program: Program, store: RunStore) -> Any:
    """Execute a program in the current run. Return its result."""
    return await ProgramRun(store, *_steps_of(store)).execute(program)


def _steps_of(store: RunStore) -> tuple[Step[[str, int], Any], Step[..., Any]]:
    world, draw = store.world, store.world.draw

    async def effect(name: str, number: int) -> list[Any]:
        await asyncio.sleep(TURN * draw.randrange(6))
        world.executed += store.is_alive
        return [name, number]

    async def flaky(name: str, number: int) -> list[Any]:
        if draw.random() < 0.4:
            await asyncio.sleep(TURN * draw.randrange(3))
            raise Flaky
        return await effect(name, number)

    for function in (effect, flaky):
        function.__annotations__.clear()  # reading them would take an eighth of the time of all runs
    return step_of(effect, {}), step_of(flaky, {})


@dataclass(slots=True)
class WarmProgram:
    """A program in a worker: its run, and the store as it sees it."""

    run: WorkflowRun
    store: RunStore

    async def leave(self) -> None:
        """Cancel the function, and wait until it has ended."""
        await self.run.waiting.leave()


class Resumed(NamedTuple):
    """The number of a run, which is its fencing token, and what the resume of its job gives to it."""

    number: int
    given: Given


async def run_once(
    program: Program, world: World, number: int, given: Given, *, kill_at: int | None
) -> tuple[Journal, Any]:
    """Run a program in one of two workers. Kill the worker when the journal has `kill_at` steps, unless it has ended.

    Return its journal and its result: KILLED for a killed run, and Suspended for one that only waits.
    """
    worker = world.draw.randrange(2)
    warm = world.warm.pop(worker, None)
    if warm is not None and not warm.run.waiting.can_go_on(given, number):
        await warm.leave()
        warm = None
    store = RunStore(world) if warm is None else warm.store
    journal = Journal(store, "1", "p1-1", number) if warm is None else warm.run.journal
    new = WarmProgram(WorkflowRun(journal, "random", "code", "fail", given), store)
    task = asyncio.ensure_future(_body(program, worker, warm, new, Resumed(number, given)))
    if kill_at is not None:
        while len(world.journal) < kill_at and not task.done():  # noqa: ASYNC110 - in the time of the loop
            await asyncio.sleep(TURN)
        if not task.done():
            store.is_alive = False
            task.cancel()
            await asyncio.wait([task], timeout=LONGEST)
            assert task.done(), "a killed run did not end"
            for kept in (world.warm.pop(worker, None), warm):
                if kept is not None:  # a run that was killed before it began has not continued its function
                    await kept.leave()
            if task.cancelled() or task.exception() is not None:
                return journal, KILLED
    async with asyncio.timeout(LONGEST):
        return journal, await task


async def _body(program: Program, worker: int, warm: WarmProgram | None, new: WarmProgram, resumed: Resumed) -> Any:
    world, given = new.store.world, resumed.given
    present = warm or new
    run = present.run
    forget_last_step()
    for _ in range(world.draw.randrange(3)):
        run.loop.call_later(TURN * world.draw.randrange(60), world.send)

    def keep() -> bool:
        if world.draw.random() < WARM and present.store.is_alive:
            world.warm[worker] = present
        return world.warm.get(worker) is present

    with running(run):
        try:
            if warm is None:
                result = await run.waiting.drive(lambda: execute(program, present.store), keep)
            else:
                world.continued[given.cause] += 1
                run.journal.reopen("p1-1", resumed.number)
                run.clock = RunClock()
                result = await run.waiting.go_on(given, run.clock, keep)
        except Suspended as suspended:
            return suspended
    run.end()
    return result


def signal_names(program: Program) -> list[str]:
    """Return the names of the signals for which a program waits, one for each wait."""
    if program.kind == "workers":  # its parts are only counted
        return []
    own = [_name(program.number)] if program.kind == "signal" else []
    return [*own, *(name for part in program.parts for name in signal_names(part))]


def calls_in(program: Program) -> int:
    """Return the number of calls of tasks that a program makes."""
    own = program.kind == "call"
    return own if program.kind == "workers" else own + sum(map(calls_in, program.parts))


def is_own(identity: str) -> bool:
    """Return whether a step is one whose executions are counted."""
    return not identity.startswith(("workflow.", "call\x1f"))


def _name(number: int) -> str:
    return f"signal {number % 3}"


def expected(program: Program) -> Any:
    """Return the result of a program without timed nodes."""
    parts = [expected(part) for part in program.parts]
    match program.kind:
        case "step":
            return ["s", program.number]
        case "key":
            return "key"
        case "pause":
            return None
        case "id":
            return program.number
        case "retry":
            return ["flaky", program.number]
        case "workers":
            return sorted(["item", number] for number in range(program.number))
        case "nap":
            return None
        case "signal":
            return _name(program.number)
        case "call":
            return program.number % 3
        case _:
            return parts
