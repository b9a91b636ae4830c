"""Random trees and graphs over three queues, with failures, removals, revocations and relays that die.

The machine knows which jobs it has completed, and nothing else of the rules. It demands that a parent starts only after
all of its children have ended and only if their policies allow it, that it then sees exactly their results, and that
every flow comes to its end.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple
from unittest.mock import patch

import msgpack

from glidemq_async.flows import plan as plans
from glidemq_async.flows.nodes import DagNode, FailurePolicy, FlowJob
from glidemq_async.flows.plan import PlannedNode, pages_of, plan_dag, refs_of
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import RequestChannel, RequestChannels
from glidemq_async.functions.children import AddedChildren, ChildRow, Pages
from glidemq_async.functions.claimed_jobs import ClaimedJob
from glidemq_async.functions.inbox import POSTED, Delivery
from glidemq_async.functions.outbox import Posted
from glidemq_async.functions.outcomes import (
    Completed,
    Failed,
    Outcome,
    Retention,
    Retry,
    Suspended,
    WaitsForChildren,
)
from glidemq_async.stored.flow import JobRef, flow_of
from glidemq_async.stored.hand_over import Waits
from glidemq_async.stored.names import QueueKeys
from tests.model.driver import Driver, run
from tests.support.fake_worker import SettledRun, in_groups, with_runs

NOW: Final = 1_700_000_000_000
QUEUES: Final = ("one", "two", "three")
POLICIES: Final[tuple[FailurePolicy, ...]] = ("fail", "fail", "wait", "collect", "ignore", "remove")
LETTERS_THAT_FAIL: Final = ("fail", "wait")
MOST_ROUNDS: Final = 2_000


class Node(NamedTuple):
    """A node of a flow that was added."""

    ref: JobRef
    policy: FailurePolicy
    children: list[JobRef]
    parents: list[JobRef]
    is_in_one_queue: bool


class Running(NamedTuple):
    """A run of the machine's worker."""

    queue: str
    job: ClaimedJob
    since: int


class FlowMachine:
    """Adds flows, runs their jobs, ends them in other ways, and compares."""

    def __init__(self, driver: Driver, seed: int) -> None:
        self.random = Random(seed)
        self.driver = driver
        driver.reset(NOW)
        self.functions = {name: Functions(driver, QueueKeys("model", name).base, RequestChannels()) for name in QUEUES}
        self.channels = {name: RequestChannel(f"worker-{name}") for name in QUEUES}
        for each in self.functions.values():
            run(each.queue.open(None))
        # With an odd seed each call does one step of work only, and flows are made page by page.
        self.is_early = seed % 2 == 1
        driver.end_calls_early(self.is_early)
        for name in QUEUES:
            self._take_id(name)
        self.refused: set[JobRef] = set()
        self.nodes: dict[JobRef, Node] = {}
        self.results: dict[JobRef, bytes] = {}
        self.ran: set[JobRef] = set()
        self.ended_by_user: set[JobRef] = set()
        self.revoking: set[JobRef] = set()
        """The jobs that were revoked while they ran."""
        self.running: list[Running] = []
        self.made = 0
        self.plans: list[tuple[str, str]] = []
        self.is_quick = False
        self.added: dict[JobRef, list[JobRef]] = {}
        """The children that runs of a job have added."""
        self.waiting: set[JobRef] = set()
        self.have_waited: set[JobRef] = set()
        self.suspended: dict[JobRef, int] = {}
        """How many ends of their children the suspended jobs knew."""
        """The jobs that wait for these."""

    # -- actions --------------------------------------------------------------------------------------------------

    def _take_id(self, queue: str) -> None:
        """Add a job that no flow owns, under an id that flows try to give."""
        extra = msgpack.packb({"delay": 10**12})
        run(self.functions[queue].add.jobs([AddRequest("taken", "n", b"\xc0", b"", extra)]))

    def add(self) -> None:
        """Add a random tree or graph."""
        count = self.random.randint(1, 9)
        most = 2 if self.random.random() < 0.3 else 1
        queues = self.random.choice((QUEUES[:1], QUEUES[:2], QUEUES))
        deps: list[list[str]] = [[] for _ in range(count)]
        for number in range(1, count):
            for parent in self.random.sample(range(number), min(number, self.random.randint(1, most))):
                deps[parent].append(str(number))
        nodes = [
            DagNode(str(number), self.random.choice(queues), deps=deps[number], on_failure=self.random.choice(POLICIES))
            for number in range(count)
        ]
        plan = plan_dag(nodes)
        home = plan[0].node.queue_name
        requests = [AddRequest("", "n", b"\xc0", b"", self._extra()) for _ in plan]
        elsewhere = [number for number, planned in enumerate(plan) if planned.node.queue_name != home]
        refused = self.random.choice(elsewhere) if elsewhere and self.random.random() < 0.1 else 0
        if refused:
            requests[refused] = requests[refused]._replace(id="taken")
        bases = [
            "" if planned.node.queue_name == home else QueueKeys("model", planned.node.queue_name).base
            for planned in plan
        ]
        with patch.object(plans, "PAGE_NODES", 2 if self.is_early else plans.PAGE_NODES):
            pages = pages_of(plan, requests, bases)
        reply = run(self.functions[home].flows.add("", f"s{len(self.plans)}", len(plan), [], pages, "default"))
        assert reply.status == "added"
        self.plans.append((home, reply.id))
        # A refused node has a name of its own here, because several flows try to give the same id.
        refs = refs_of(plan, requests, reply.id)
        if refused:
            refs[refused] = JobRef(refs[refused].queue, f"refused {len(self.plans)}")
            self.refused.add(refs[refused])
        self._note(plan, refs)

    def _extra(self) -> bytes:
        kind = self.random.random()
        if kind < 0.1:
            return msgpack.packb({"priority": 3})
        return b"kk" if kind < 0.2 else b""

    def _note(self, plan: list[PlannedNode], refs: list[JobRef]) -> None:
        for planned, ref in zip(plan, refs, strict=True):
            children = [refs[child] for child in planned.children]
            parents = [refs[parent] for parent in planned.parents]
            is_in_one_queue = len({each.queue for each in refs}) == 1
            self.nodes[ref] = Node(ref, planned.node.on_failure, children, parents, is_in_one_queue)

    def add_children(self, queue: str) -> None:
        """Let a run add children to its job."""
        mine = [one for one in self.running if one.queue == queue and one.job.id in self._ids(queue)]
        if not mine:
            return
        revoked = [one for one in mine if JobRef(queue, one.job.id) in self.revoking]
        one, home = self.random.choice(revoked or mine), self.functions[queue]
        ref = JobRef(queue, one.job.id)
        earlier = self.added.get(ref, [])
        queues = self.random.choice(([queue], list(QUEUES)))
        chosen = [self.random.choice(queues) for _ in range(self.random.randint(1, 3))]
        first = len(earlier) + 1
        plan = [PlannedNode(FlowJob("n", name, on_failure=self.random.choice(POLICIES)), [0]) for name in chosen]
        requests = [AddRequest("", "n", b"\xc0", b"", self._extra()) for _ in plan]
        bases = ["" if name == queue else QueueKeys("model", name).base for name in chosen]
        with patch.object(plans, "PAGE_NODES", 2 if self.is_early else plans.PAGE_NODES):
            pages = pages_of(plan, requests, bases, first)
        children = [(number, "") for number in range(first, first + len(plan))]
        stamp = f"a{len(self.plans)}"
        reply = run(home.children.add(ref.job_id, one.job.entry, stamp, first, children, Pages(pages, len(plan))))
        if not isinstance(reply, AddedChildren):
            assert reply.status in {"stale", "missing"}, reply
            return
        self.plans.append((queue, reply.flow))
        refs = refs_of(plan, requests, reply.flow, queue, first)
        self.added[ref] = [*earlier, *refs]
        for planned, child in zip(plan, refs, strict=True):
            is_in_one_queue = set(chosen) == {queue}
            self.nodes[child] = Node(child, planned.node.on_failure, [], [ref], is_in_one_queue)

    def _ids(self, queue: str) -> set[str]:
        return {ref.job_id for ref in self.nodes if ref.queue == queue}

    def work(self, queue: str) -> int:
        """Settle some runs of a queue and claim more jobs. Return how many were claimed."""
        mine = [one for one in self.running if one.queue == queue]
        some = self.random.sample(mine, self.random.randint(0, len(mine)))
        functions = self.functions[queue]
        request = functions.settle.request(
            self.channels[queue], f"worker-{queue}", self.random.randint(1, 3), 30_000, subscribed=False
        )
        settled = in_groups([self._settled(one) for one in some])
        by_entry = {one.job.entry: one for one in some}
        self.running = [one for one in self.running if one not in some]
        reply = run(functions.settle.send(with_runs(request, settled)))
        for position, one in enumerate(settled[: reply.settled]):
            ref, outcome = JobRef(queue, one.id), one.outcome
            if position in reply.refused:
                continue
            if isinstance(outcome, Completed):
                self.results[ref] = outcome.result
            if isinstance(outcome, WaitsForChildren):
                self.waiting.add(ref)
                self.have_waited.add(ref)
            if isinstance(outcome, Suspended):
                self.suspended[ref] = outcome.known_ends or 0
        self.running += [by_entry[one.entry] for one in settled[reply.settled :]]
        for job in reply.jobs:
            self._check_start(JobRef(queue, job.id), job)
            self.running.append(Running(queue, job, reply.now))
        return len(reply.jobs)

    def _settled(self, one: Running) -> SettledRun:
        return SettledRun(one.job.id, one.job.entry, self._outcome(JobRef(one.queue, one.job.id)))

    def _outcome(self, ref: JobRef) -> Outcome:
        draw = self.random.random()
        if ref in self.added and self.random.random() < 0.4 and (ends := self._known_ends(ref)) is not None:
            return Suspended(Waits("", (), children=True).stored(), None, known_ends=ends)
        keep = Retention(0, 0) if self.random.random() < 0.3 else None
        if draw < (0.6 if ref in self.added else 0.02):
            return WaitsForChildren()
        if draw < 0.65:
            # Each result is another one.
            self.made += 1
            return Completed(msgpack.packb(self.made), keep)
        return Failed(b"", "unrecoverable", "bad", keep) if draw < 0.85 else Retry(b"", 0, "again")

    def _known_ends(self, ref: JobRef) -> int | None:
        """Return how many ends of its children a run knows, None if nothing would resume it."""
        present = run(self.functions[ref.queue].children.read_present(ref.job_id))
        if ref not in self.have_waited and present.rows:
            cancelled = {row.id for row in present.rows if row.value in {b"cancelled", b"not started"}}
            ended = [row for row in present.rows if row.ending == "c" or (row.ending and row.policy != "f")]
            assert present.ends == len({row.id for row in ended} - cancelled), f"{ref} has {present}"
        # The run may not know the last end. Then it must not be suspended, and no further child need end.
        is_open = not all(row.ending for row in present.rows)
        if is_open and self.random.random() < 0.5:
            return present.ends
        return present.ends - 1 if present.ends > 0 else None

    def end_some_job(self) -> None:
        """Remove or revoke a job of a flow, in whatever state it is."""
        if not self.nodes:
            return
        ref = self.random.choice(list(self.nodes))
        running = [JobRef(one.queue, one.job.id) for one in self.running if one.job.id in self._ids(one.queue)]
        if running and self.random.random() < 0.4:
            spawning = [each for each in running if each in self.added]
            ref = self.random.choice(spawning or running)
        jobs = self.functions[ref.queue].jobs
        code = run(jobs.remove(ref.job_id) if self.random.random() < 0.5 else jobs.revoke(ref.job_id)).code
        if code != "missing":
            self.ended_by_user.add(ref)
        if code == "revoking":
            self.revoking.add(ref)

    def relay(self, queue: str, *, may_die: bool = True) -> bool:
        """Relay some of an outbox. A relay that dies has delivered entries, and they stay in the outbox."""
        functions, after, done, moved = self.functions[queue], "", list[str](), False
        while True:
            after, posted, has_work, _ = run(functions.outbox.relay("relay", after, done))
            if has_work:
                run(functions.flows.advance())
            if not posted and not has_work:
                return moved
            moved = True
            done = list[str]()
            for to in dict.fromkeys(one.to for one in posted):
                if may_die and self.random.random() < 0.2:
                    return moved
                self._deliver(functions, to, [one for one in posted if one.to == to])
                if may_die and self.random.random() < 0.2:
                    return moved
                done += [one.entry for one in posted if one.to == to]

    def _deliver(self, source: Functions, to: str, posted: list[Posted]) -> None:
        target = self.functions[QueueKeys.of(to).queue]
        deliveries = [Delivery(f"{source.caller.base}/{one.entry}", *one[2:]) for one in posted]
        reply = run(target.inbox.deliver(deliveries))
        assert set(reply.values()) <= {"seen", "posted"}, reply
        assert all(status == "seen" or position == POSTED for position, status in reply.items())

    def empty(self, queue: str) -> None:
        """Drain or clean a queue."""
        cleaning, states = self.functions[queue].cleaning, ("waiting", "waiting-children", "prioritized")
        kept = self._unstarted(queue)
        if self.random.random() < 0.5:
            run(cleaning.drain("", delayed=False))
        else:
            run(cleaning.clean_unstarted("", self.random.choice(states), 0, 100))
        self.ended_by_user |= kept - self._unstarted(queue)

    def _unstarted(self, queue: str) -> set[JobRef]:
        refs = [ref for ref in self.nodes if ref.queue == queue]
        states = self._states(refs)
        return {ref for ref in refs if states[ref] not in ("", "active", "completed", "failed")}

    # -- checks ---------------------------------------------------------------------------------------------------

    def _states(self, refs: list[JobRef]) -> dict[JobRef, str]:
        """Return the state of each job, "" for one that does not exist."""
        found: dict[JobRef, str] = {}
        for queue in QUEUES:
            mine = [ref for ref in refs if ref.queue == queue]
            records = run(self.functions[queue].reading.get_records([ref.job_id for ref in mine])) if mine else []
            for ref, record in zip(mine, records, strict=True):
                found[ref] = record.get(b"place", b"").decode().partition(" ")[0]
        return found

    def _tolerates(self, child: JobRef) -> bool:
        return child in self.results or self.nodes[child].policy not in LETTERS_THAT_FAIL

    def _check_start(self, ref: JobRef, job: ClaimedJob) -> None:
        node = self.nodes[ref]
        self.ran.add(ref)
        self._check_added(ref)
        if ref in self.suspended:
            present = run(self.functions[ref.queue].children.read_present(ref.job_id))
            assert present.ends > self.suspended.pop(ref), f"{ref} starts again, and no further child has ended"
        for child, state in self._states(node.children).items():
            assert state in ("", "completed", "failed"), f"{ref} starts, and its child {child} is {state}"
            assert self._tolerates(child), f"{ref} starts, and its child {child} has no result"
        flow = flow_of(job.opts)
        assert flow is not None
        assert list(flow.parents) == node.parents or self.refused.intersection(node.parents)
        self._check_need(node)
        home = self.functions[QueueKeys.of(flow.home).queue if flow.home else ref.queue]
        rows = run(home.children.read(flow.flow, flow.stamp, flow.node))
        assert rows is not None
        self._check_rows(ref, node.children, rows)

    def _check_rows(self, ref: JobRef, children: list[JobRef], rows: list[ChildRow]) -> None:
        for child, row in zip(children, rows, strict=True):
            assert child in self.refused or (QueueKeys.of(row.base).queue, row.id) == child
            known = ("c", self.results[child]) if child in self.results else ("f", row.value)
            assert (row.ending, row.value) == known, f"{ref} sees {row} and not {known}"

    def _check_added(self, ref: JobRef) -> None:
        """A job that has waited starts after all children that its runs have added."""
        if ref not in self.waiting:
            return
        self.waiting.remove(ref)
        children = self.added.get(ref, [])
        for child, state in self._states(children).items():
            assert state in ("", "completed", "failed"), f"{ref} starts, and its added child {child} is {state}"
            assert self._tolerates(child), f"{ref} starts, and its added child {child} has no result"
        rows = run(self.functions[ref.queue].children.read(ref.job_id, "", 0))
        assert rows is not None
        self._check_rows(ref, children, rows)

    def _check_need(self, node: Node) -> None:
        """A job of a flow in one queue starts only while a parent waits for it: cancelling is a part of each end."""
        if not node.is_in_one_queue or not node.parents:
            return
        if self._is_added(node):
            assert node.parents[0] not in self.revoking, f"{node.ref} starts, and the run that added it is revoked"
            assert self._states(node.parents)[node.parents[0]] not in ("", "completed", "failed"), f"{node.ref} starts"
            return
        assert any(map(self._waits, node.parents)), f"{node.ref} starts, and no parent needs it"

    def _is_added(self, node: Node) -> bool:
        return bool(node.parents) and node.ref in self.added.get(node.parents[0], [])

    def _waits(self, parent: JobRef) -> bool:
        children = [ref for ref in self.nodes[parent].children if self.nodes[ref].policy == "fail"]
        states = self._states([parent, *children])
        going = {ref for ref in children if states[ref] not in ("", "completed", "failed")}
        waits = states[parent] == "waiting-children"
        # A node without a record may have ended, or is not made yet.
        return waits and (self.is_early or all(ref in self.results or ref in going for ref in children))

    def check(self) -> None:
        """Verify the invariants of the stored data."""
        for name, functions in self.functions.items():
            ids = [ref.job_id for ref, state in self._states([*self.nodes]).items() if state and ref.queue == name]
            found = run(functions.check_marks.queue()) + run(functions.check.records(ids))
            for structure in ("parents", "fifo", "runs", "completed", "failed", "prioritized", "keyed", "returned"):
                found += run(functions.check.locations(structure, "", 1000))[1]
            assert found == [], (name, found)

    def finish(self) -> None:
        """Let everything come to its end, and verify that it does."""
        for _ in range(MOST_ROUNDS):
            idle = not self.running
            moved = [self.relay(queue, may_die=False) for queue in QUEUES]
            claimed = [self.work(queue) for queue in QUEUES]
            if idle and not any(moved) and not any(claimed):
                break
        states = self._states([*self.nodes])
        assert set(states.values()) <= {"", "completed", "failed"}, states
        for node in self.nodes.values():
            self._check_end(node)
        for name, functions in self.functions.items():
            for structure in ("flowed", "parents", "flow_work", "outbox"):
                key = f"{functions.caller.base}:{structure}"
                assert self.driver.wire.send("EXISTS", key) == 0, f"{structure} of {name} is not empty"
        for home, flow in self.plans:
            live = self.driver.wire.send("HGET", f"{QueueKeys('model', home).base}:flow:{flow}", "live")
            assert live == b"0", f"{live!r} nodes of flow {flow} have not ended"
        self.check()

    def _check_end(self, node: Node) -> None:
        if node.ref in self.ran or node.ref in self.ended_by_user or node.ref in self.refused or self._is_added(node):
            return
        if all(self._tolerates(child) for child in node.children):
            assert node.parents, f"{node.ref} could have run and did not"
            assert not self.ran.intersection(node.parents), f"{node.ref} did not run, but a parent of it did"

    # -- the machine ----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Take one random step."""
        queue, draw = self.random.choice(QUEUES), self.random.random()
        self.driver.delivery = self.random.choice(("once", "once", "twice", "lost"))
        if draw < 0.15:
            self.add()
        elif draw < 0.22:
            self.add_children(queue)
        elif draw < 0.6:
            self.work(queue)
        elif draw < 0.68:
            self.end_some_job()
        elif draw < 0.7:
            self.empty(queue)
        elif draw < 0.95:
            self.relay(queue)
        elif not self.is_quick:
            self.check()
        self.driver.delivery = "once"


def run_flows(driver: Driver, seed: int, steps: int, *, is_quick: bool = False) -> int:
    """Take this many random steps and let all flows come to their end. Return the number of flows.

    A quick run verifies the invariants of the stored data at its end only.
    """
    machine = FlowMachine(driver, seed)
    machine.is_quick = is_quick
    for _ in range(steps):
        machine.step()
    machine.finish()
    return len(machine.plans)
