"""Random filters, each with the same condition in Python, for the tests of every face."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any, TypeAlias

from glidemq_async import JobOptions
from tests.support.helpers import AnyQueue

Fact: TypeAlias = dict[str, Any]
"""The properties of a job that the filters are about."""
Check: TypeAlias = Callable[[Fact], bool]


async def add_facts(queue: AnyQueue, facts: dict[str, Fact]) -> None:
    """Add a job for each of the facts, under its id."""
    for job_id, fact in facts.items():
        options = JobOptions(job_id=job_id, key=fact["key"], priority=fact["priority"])
        await queue.add(fact["name"], {"n": fact["n"], "to": [fact["to"]]}, options)


def random_filter(draw: random.Random) -> tuple[str, Check]:
    """Return a random filter of one to three terms, and the same condition in Python."""
    chosen = [_term(draw) for _ in range(draw.randint(1, 3))]
    return " ".join(text for text, _ in chosen), lambda fact: all(test(fact) for _, test in chosen)


def random_facts(draw: random.Random) -> Fact:
    """Return the properties of a random job."""
    return {
        "name": draw.choice(["send", "send mail", "resize"]),
        "key": draw.choice([None, "a", "b"]),
        "priority": draw.randint(0, 3),
        "n": draw.choice([0, 1, 2.5, "1", None, True]),
        "to": draw.choice(["ada@x", "bob@x"]),
    }


ORDER = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def _term(draw: random.Random) -> tuple[str, Check]:
    """Return a random term, and the same condition in Python."""
    text, test = draw.choice(_TERMS)(draw)
    return (f"-{text}", lambda fact: not test(fact)) if draw.random() < 0.3 else (text, test)


def _name(draw: random.Random) -> tuple[str, Check]:
    name = draw.choice(["send", "send mail", "resize", "none"])
    return f'name:"{name}"', lambda fact: fact["name"] == name


def _start(draw: random.Random) -> tuple[str, Check]:
    start = draw.choice(["s", "send", "re", "x"])
    return f"name:{start}*", lambda fact: fact["name"].startswith(start)


def _key(draw: random.Random) -> tuple[str, Check]:
    keys = draw.choice([["a"], ["a", "b"], ["c"]])
    return f"key:{','.join(keys)}", lambda fact: fact["key"] in keys


def _priority(draw: random.Random) -> tuple[str, Check]:
    sign, bound = draw.choice(list(ORDER)), draw.randint(0, 3)
    return f"priority:{sign}{bound}", lambda fact: ORDER[sign](fact["priority"], bound)


def _number(draw: random.Random) -> tuple[str, Check]:
    sign, bound = draw.choice(list(ORDER)), draw.choice([0, 1, 2])
    return f"data.n:{sign}{bound}", lambda fact: type(fact["n"]) in (int, float) and ORDER[sign](fact["n"], bound)


def _equal(draw: random.Random) -> tuple[str, Check]:
    text, values = draw.choice(
        [("1", (1, "1")), ("2.5", (2.5,)), ("true", (True,)), ("null", (None,)), ('"1"', ("1",))]
    )
    kinds = {(type(value), value) for value in values}
    return f"data.n:{text}", lambda fact: (type(fact["n"]), fact["n"]) in kinds


def _to(draw: random.Random) -> tuple[str, Check]:
    name = draw.choice(["ada", "bob", "eve"])
    return f"data.to:{name}@*", lambda fact: fact["to"] == f"{name}@x"


def _word(draw: random.Random) -> tuple[str, Check]:
    word = draw.choice(["MAIL", "size", "zzz"])
    return word, lambda fact: word.lower() in fact["name"]


_TERMS = (_name, _start, _key, _priority, _number, _equal, _to, _word)
