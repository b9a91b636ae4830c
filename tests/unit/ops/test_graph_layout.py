"""The layout of graphs: levels, the order in each level, and the ways of edges."""

from __future__ import annotations

import random
from itertools import pairwise

from glidemq_async.ops.graph_layout import Edge, Layout, layout_of, levels_of


def crossings(layout: Layout) -> int:
    """Return how many pairs of edges between neighbouring levels cross."""
    place = {node: at for column in layout.columns for at, node in enumerate(column)}
    level = {node: number for number, column in enumerate(layout.columns) for node in column}
    parts = [(level[a], place[a], place[b]) for path in layout.paths for a, b in pairwise(path)]
    return sum(
        one[0] == other[0] and (one[1] - other[1]) * (one[2] - other[2]) < 0
        for number, one in enumerate(parts)
        for other in parts[:number]
    )


def test_each_node_is_behind_all_nodes_for_which_it_waits() -> None:
    rng = random.Random(7)
    for _ in range(50):
        count = rng.randint(1, 40)
        edges = [(a, b) for a in range(count) for b in range(a + 1, count) if rng.random() < 0.1]
        levels = levels_of(count, edges)
        assert all(levels[start] < levels[end] for start, end in edges)
        layout = layout_of(levels, edges)
        assert sorted(node for column in layout.columns for node in column if node < count) == list(range(count))
        for path in layout.paths:
            column_of = [next(n for n, column in enumerate(layout.columns) if node in column) for node in path]
            assert column_of == list(range(column_of[0], column_of[0] + len(path)))


def test_a_node_without_predecessors_is_next_to_its_successor() -> None:
    assert levels_of(4, [(0, 1), (1, 2), (3, 2)]) == [0, 1, 2, 1]


def test_damaged_plans_with_a_cycle_do_not_hang() -> None:
    assert len(levels_of(3, [(0, 1), (1, 0), (1, 2)])) == 3


def test_barycentres_remove_crossings() -> None:
    edges: list[Edge] = [(0, 7), (1, 6), (2, 5), (3, 4)]
    layout = layout_of(levels_of(8, edges), edges)
    assert crossings(layout) == 0
