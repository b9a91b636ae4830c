"""Actions on dead letters: they are relayed to another queue, delivered by other queues, and replayed."""

from __future__ import annotations

from typing import ClassVar

import hypothesis.strategies as st
import msgpack

from glidemq_async.functions.calling import Arg
from glidemq_async.functions.inbox import Delivery as Delivered
from glidemq_async.functions.replaying import MovedDeadLetter, Revival
from tests.model.choices import ARRIVALS, CAUSES, DELIVERY, NUMBER, action
from tests.model.compare import same
from tests.model.compare_dead_letters import decode_origin, posted
from tests.model.dead_letters import Arrival, Return
from tests.model.driver import Delivery, run
from tests.model.machine_base import BaseMachine
from tests.model.parts import Job, NewJob, Origin
from tests.model.posting import Posted
from tests.model.worker import add_request

MOST_A_CALL = 3
"""Jobs that one call adds here."""
Walk = tuple[int, int | None]
FIRST: Walk = (0, None)


class Relay:
    """A relayer of the outbox: its position, and the entries that it has read."""

    def __init__(self) -> None:
        self.after = ""
        self.read: list[tuple[str, Posted]] = []


class DeadLetterActions(BaseMachine):
    """Replaces the dead-letter queue, which does not exist here, and keeps the jobs that would arrive in it."""

    HOLDERS: ClassVar = ("r1", "r2")

    def __init__(self) -> None:
        super().__init__()
        self.relays = {name: Relay() for name in self.HOLDERS}
        self.moved_away: dict[str, Posted] = {}  # token -> dead letter
        self.arrived = 0
        self.moved_read: list[str] = []  # moved jobs that a user has read
        self.walks: dict[str, Walk] = {}

    @action(1, name=st.sampled_from(["graves", "graves", "graves", "vault", ""]))
    def set_dead_letter_queue(self, name: str) -> None:
        run(self.functions.dead_letters.set_queue(name))
        self.model.dead_letter, self.dirty = name, True
        same("name of the dead-letter queue", run(self.functions.dead_letters.get_queue()), name)

    @action(2, holder=st.sampled_from(HOLDERS), arrive=NUMBER, delivery=DELIVERY)
    def relay(self, holder: str, arrive: int, delivery: Delivery) -> None:
        """Deliver some of the entries that were read last. A relayer may also forget everything and begin again."""
        relay = self.relays[holder]
        done = [row for at, row in enumerate(relay.read) if arrive >> at & 3]
        self.moved_away |= {f"graves/{entry}": one for entry, one in done}
        if arrive % 16 == 0:
            relay.after = ""
        delivered = [entry for entry, _ in done]
        self.driver.delivery, self.dirty = delivery, True
        after, rows, has_work, _ = run(self.functions.outbox.relay(holder, relay.after, delivered))
        assert not has_work
        found = after, [(row.entry, posted(row, named=True)) for row in rows]
        same("reply of relayOutbox", found, self.model.relay(holder, relay.after, delivered))
        relay.after, relay.read = found

    @action(2, chosen=st.lists(NUMBER, min_size=1, max_size=MOST_A_CALL), delivery=DELIVERY)
    def revive(self, chosen: list[int], delivery: Delivery) -> None:
        """Return dead letters from the dead-letter queue, some of them twice."""
        tokens = [*self.moved_away]
        returns, calls = list[Return](), list[Revival]()
        for number in chosen if tokens else ():
            token = tokens[-1 - number % len(tokens)]
            one = self.moved_away[token]
            if not self.is_record_lost(one.origin.id):
                new = as_new(one)
                returns.append(Return(token, one.origin.failed, new))
                request = add_request(new)
                waited = route_text(one.origin.route)
                calls.append(
                    Revival(token, new.id, one.origin.failed, request.name.encode(), request.data, request.opts, waited)
                )
        if calls:
            self.driver.delivery, self.dirty = delivery, True
            codes = run(self.functions.replaying.revive(calls))
            same("reply of reviveJobs", codes, self.model.revive(returns))

    @action(2, posts=st.lists(st.tuples(NUMBER, st.sampled_from(ARRIVALS)), min_size=1, max_size=MOST_A_CALL),
          delivery=DELIVERY)  # fmt: skip
    def deliver(self, posts: list[tuple[int, tuple[NewJob, str]]], delivery: Delivery) -> None:
        """Let other queues deliver the jobs that they posted, sometimes twice."""
        arrivals = list[Arrival]()
        for number, (kind, cause) in posts:
            self.arrived += 1
            token = f"other/{self.arrived if number % 4 else number // 4 % self.arrived}"
            id_ = f"other/{number % 3}" if number % 5 == 0 else token + "/1-1"
            new = kind._replace(id=id_, name=f"o{self.arrived}", data=f"{number}")
            if self.plain:
                new = new._replace(priority=0, lifo=False, key=None, dedup=None)
            there = Origin("other", f"{number}", cause, "because", 3, self.model.now - 1_000 * number, ())
            if not self.is_record_lost(id_):
                arrivals.append(Arrival(token, new, there if cause else None))
        if arrivals:
            self.driver.delivery, self.dirty = delivery, True
            outcomes = run(self.functions.inbox.deliver([as_delivered(one) for one in arrivals]))
            same("reply of deliverJobs", outcomes, self.model.deliver(arrivals))

    @action(2, count=st.sampled_from([1, 2, 9]), cause=CAUSES, delivery=DELIVERY)
    def replay(self, count: int, cause: str, delivery: Delivery) -> None:
        """Make one step of replaying jobs that failed here."""
        skip, left = self.walks.get(cause, FIRST)
        self.driver.delivery, self.dirty = delivery, True
        step = run(self.functions.replaying.replay_failed(skip, left, count, cause))
        same("reply of replayFailed", tuple(step), self.model.replay_failed(skip, left, count, cause))
        self.walks[cause] = (step.skip, step.left) if step.left else FIRST

    @action(1, count=st.sampled_from([1, 2, 9]), cause=CAUSES)
    def read_moved(self, count: int, cause: str) -> None:
        """Make one step of replaying jobs that were moved here. They restart in the queue that they come from."""
        name = "moved " + cause
        skip, left = self.walks.get(name, FIRST)
        step = run(self.functions.replaying.read_moved(skip, left, count, cause))
        *expected, jobs = self.model.read_moved(skip, left, count, cause)
        same("reply of readMoved", [step.skip, step.left], expected)
        same(
            "jobs that were moved here",
            [as_read(one) for one in step.found],
            [expected_dead_letter(job) for job in jobs],
        )
        self.walks[name] = (step.skip, step.left) if step.left else FIRST
        self.moved_read += [one.id for one in step.found]

    @action(1, count=st.integers(1, 3), delivery=DELIVERY)
    def drop_moved(self, count: int, delivery: Delivery) -> None:
        """Delete the replayed jobs here."""
        ids, self.moved_read = self.moved_read[:count], self.moved_read[count:]
        if ids:
            self.driver.delivery, self.dirty = delivery, True
            same("reply of dropMoved", run(self.functions.replaying.drop_moved(ids)), self.model.drop_moved(ids))

    def check(self) -> None:
        super().check()
        for cause in ("", "unrecoverable"):
            for which in ("failed", "moved"):
                ids, cursor = list[str](), ""
                while True:
                    cursor, some = run(self.functions.replaying.list_ids(which, cursor, 3, cause))
                    ids += some
                    if not cursor:
                        break
                same(f"dead letters: {which} {cause}", ids, self.model.dead(which, cause))


def as_new(one: Posted) -> NewJob:
    """Return the job that became this dead letter."""
    kind, *values = one.origin.route or ("",)
    new = NewJob(one.origin.id, one.name, one.data, one.options[0], result_ttl=one.options[1])
    if kind == "k":
        priority, cost, key = values
        return new._replace(priority=int(str(priority)), cost=int(str(cost)), key=str(key))
    return new._replace(lifo=kind == "l", priority=int(str(values[0])) if kind == "p" else 0)


def route_text(waited: tuple[object, ...]) -> str:
    """Return how the job waited, as it is stored. Its position in the line of its key does not matter."""
    if waited[:1] == ("k",):
        _, priority, cost, key = waited
        return f"k {priority} 77 {cost} 7000 {key}"
    return " ".join(map(str, waited))


def as_delivered(one: Arrival) -> Delivered:
    request = add_request(one.job)
    packed = b""
    if one.origin is not None:
        fields: list[Arg] = [*one.origin[:-1], route_text(one.origin.route)]
        packed = msgpack.packb(fields)
    name = request.name.encode()
    return Delivered(one.token, request.id.encode(), name, request.data, request.opts, request.extra, packed)


def as_read(one: MovedDeadLetter) -> tuple[object, ...]:
    return one.id, decode_origin(one.origin), one.name.decode(), one.data.decode()


def expected_dead_letter(job: Job) -> tuple[object, ...]:
    return job.id, job.origin, job.name, job.data
