"""The layout of a graph in levels: the longest path decides the level of a node, and barycentres order each level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

Edge: TypeAlias = tuple[int, int]

_SWEEPS: Final = 4
"""Number of times that all levels are ordered, in both directions in turn."""


def levels_of(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return the level of each node: the length of the longest path that ends there.

    A node without predecessors is moved next to its successors. Only damaged data can contain a cycle. Its nodes keep
    the level that was found last.
    """
    after: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for start, end in edges:
        after[start].append(end)
        missing[end] += 1
    levels = [0] * count
    sources = [node for node in range(count) if not missing[node]]
    ready = list(sources)
    while ready:
        node = ready.pop()
        for following in after[node]:
            levels[following] = max(levels[following], levels[node] + 1)
            missing[following] -= 1
            if not missing[following]:
                ready.append(following)
    for node in sources:
        if after[node]:
            levels[node] = min(levels[following] for following in after[node]) - 1
    return levels


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of the nodes in each level, and the way of each edge.

    A number from the number of nodes on is a bend: a place of an edge in a level that it crosses. `paths` has the nodes
    and bends of each edge.
    """

    columns: list[list[int]]
    paths: list[list[int]]


def layout_of(levels: Sequence[int], edges: Sequence[Edge]) -> Layout:
    """Return a layout with few crossings."""
    depth = max(levels, default=0) + 1
    columns: list[list[int]] = [[] for _ in range(depth)]
    for node, level in enumerate(levels):
        columns[level].append(node)
    paths: list[list[int]] = []
    bend = len(levels)
    for start, end in edges:
        crossed = range(levels[start] + 1, levels[end])
        bends = list(range(bend, bend + len(crossed)))
        for level, number in zip(crossed, bends, strict=True):
            columns[level].append(number)
        bend += len(bends)
        paths.append([start, *bends, end])
    before: list[list[int]] = [[] for _ in range(bend)]
    after: list[list[int]] = [[] for _ in range(bend)]
    for path in paths:
        for one, other in pairwise(path):
            after[one].append(other)
            before[other].append(one)
    for sweep in range(_SWEEPS):
        _order(columns, before) if sweep % 2 == 0 else _order(columns[::-1], after)
    return Layout(columns, paths)


def _order(columns: Sequence[list[int]], neighbours: Sequence[Sequence[int]]) -> None:
    """Sort each column by the mean place of the neighbours in the columns before it."""
    place = {node: _place(at, len(column)) for column in columns for at, node in enumerate(column)}
    for column in columns:
        column.sort(key=lambda node: _mean([place[one] for one in neighbours[node]], place[node]))
        for at, node in enumerate(column):
            place[node] = _place(at, len(column))


def _place(at: int, length: int) -> float:
    return (at + 0.5) / length


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
