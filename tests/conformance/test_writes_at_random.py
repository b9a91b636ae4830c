"""Writes with random opening, adding, ending, running and removing, compared with their contract."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

import pytest

from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Arg
from glidemq_async.storage.protocol import FunctionError
from tests.support.helpers import AnyQueue

HOUR = 3_600_000
IDS = [f"j{number}" for number in range(30)]
WRITES = ("w1", "w2", "w3")
NEWEST_RUNS = 3
STEPS = 200


@dataclass
class Write:
    """The expected state of a write."""

    state: str
    token: str
    order: int
    met: set[str] = field(default_factory=set[str])
    inserted: int = 0
    replayed: int = 0
    duplicate: int = 0


class ExpectedWrites:
    """The expected state of a queue and its writes, by the contract in functions/writes.lua."""

    def __init__(self) -> None:
        self.jobs: set[str] = set()
        self.writes: dict[str, Write] = {}

    def open(self, name: str, token: str, order: int) -> str:
        """Return the reply code, or the code of the refusal."""
        write = self.writes.get(name)
        if write is None:
            self.writes[name] = Write("open", token, order)
            return "open"
        if write.state == "committed":
            return "done"
        if write.state == "aborted" and write.token == token:
            return "WRITEFENCED"
        if order < write.order:
            return "WRITEFENCED"
        write.state, write.token, write.order = "open", token, order
        return "open"

    def add(self, name: str, token: str, ids: list[str]) -> tuple[int, int, int] | None:
        """Return inserted, replayed and duplicate rows, or None for a refusal."""
        write = self.writes.get(name)
        if write is None or write.state != "open" or write.token != token:
            return None
        inserted = replayed = duplicate = 0
        for id_ in ids:
            if id_ in write.met:
                replayed += 1
            elif id_ in self.jobs:
                duplicate += 1
            else:
                inserted += 1
                self.jobs.add(id_)
            write.met.add(id_)
        write.inserted += inserted
        write.replayed += replayed
        write.duplicate += duplicate
        return inserted, replayed, duplicate

    def probe(self, name: str, token: str, ids: list[str]) -> tuple[int, int, list[int]] | None:
        """Return replayed and duplicate rows and the positions of the others, or None for a refusal."""
        write = self.writes.get(name)
        if write is None or write.state != "open" or write.token != token:
            return None
        replayed = duplicate = 0
        missing: list[int] = []
        for at, id_ in enumerate(ids):
            if id_ in write.met:
                replayed += 1
            elif id_ in self.jobs:
                duplicate += 1
                write.met.add(id_)
            else:
                missing.append(at)
        write.replayed += replayed
        write.duplicate += duplicate
        return replayed, duplicate, missing

    def end(self, name: str, token: str, state: str) -> tuple[str, str]:
        """Return the reply code and the state of the write."""
        write = self.writes.get(name)
        if write is None:
            return "missing", ""
        if write.state == state:
            return "ok", state
        if write.token != token:
            return "fenced", write.state
        if write.state != "open":
            return "state", write.state
        write.state = state
        return "ok", state


@pytest.mark.parametrize("seed", range(6))
async def test_any_order_of_calls_follows_the_contract(queue: AnyQueue, seed: int) -> None:
    dice, expected = random.Random(seed), ExpectedWrites()
    await queue.connect()
    functions = Functions(queue.storage, f"glide:{{{queue.name}}}")
    runs = [("first", await functions.writes.plan())]
    for step in range(STEPS):
        if dice.random() < 0.05:
            runs.append((f"run {step}", await functions.writes.plan()))
        name, (token, order), dart = dice.choice(WRITES), dice.choice(runs[-NEWEST_RUNS:]), dice.random()
        if dart < 0.15:
            assert await _opened(functions, name, token, order) == expected.open(name, token, order)
        elif dart < 0.35:
            ids = [dice.choice(IDS) for _ in range(dice.randint(1, 6))]
            assert await _probed(functions, name, token, ids) == expected.probe(name, token, ids)
        elif dart < 0.75:
            ids = [dice.choice(IDS) for _ in range(dice.randint(1, 6))]
            assert await _added(functions, name, token, ids) == expected.add(name, token, ids)
        elif dart < 0.85:
            state: Literal["committed", "aborted"] = "committed" if dart < 0.78 else "aborted"
            assert await functions.writes.end(name, token, state) == expected.end(name, token, state)
        elif expected.jobs:
            # It ran and was removed, or a user removed it: both are the same to a write.
            gone = dice.choice(sorted(expected.jobs))
            assert await queue.remove(gone)
            expected.jobs.remove(gone)
    for name, write in expected.writes.items():
        (found,) = await functions.writes.get([name])
        counted = {key: int(found[key.encode()]) for key in ("inserted", "replayed", "duplicate")}
        assert counted == {"inserted": write.inserted, "replayed": write.replayed, "duplicate": write.duplicate}
        assert (found[b"state"].decode(), found[b"token"].decode()) == (write.state, write.token)
    assert {job.id for job in await queue.get_jobs("waiting", 0, 100)} == expected.jobs


async def _opened(functions: Functions, name: str, token: str, order: int) -> str:
    try:
        return "open" if await functions.writes.open(name, token, HOUR, order=order) else "done"
    except FunctionError as error:
        return error.code


async def _probed(functions: Functions, name: str, token: str, ids: list[str]) -> tuple[int, int, list[int]] | None:
    try:
        return await functions.writes.probe(name, token, ids)
    except FunctionError as error:
        if error.code != "WRITEFENCED":
            raise
        return None


async def _added(functions: Functions, name: str, token: str, ids: list[str]) -> tuple[int, int, int] | None:
    rows: list[Arg] = []
    for id_ in ids:
        rows += [id_, "n", b"\xc0", b"", b""]
    try:
        reply = await functions.writes.add(name, token, rows)
    except FunctionError as error:
        if error.code != "WRITEFENCED":
            raise
        return None
    return reply.inserted, reply.replayed, reply.duplicate
