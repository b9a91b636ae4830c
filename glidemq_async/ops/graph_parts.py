"""The parts of the graph of a flow: its nodes and edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A job of a flow, or `count` jobs of one level with the same state.

    `state` is the state of the job, "planned" before the job is made, or "cancelled" if nothing needs it any more.
    `reason` says why the job has failed. `policy` is its `on_failure`, "" for a root. `level` is the number of jobs on
    the longest path before it. `is_focus` marks the job for which the graph was read.
    """

    queue: str
    id: str
    name: str
    state: str
    reason: str = ""
    policy: str = ""
    level: int = 0
    count: int = 1
    is_focus: bool = False


@dataclass(frozen=True, slots=True)
class GraphParts:
    """The graph of a flow.

    `edges` are pairs of positions in `nodes`: the second node waits for the first one. `total` is the number of jobs,
    `states` counts them, and `is_complete` is False if the flow has more jobs than were read. `as_of` is the time of
    the read in UTC.
    """

    queue: str
    id: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[int, int], ...]
    total: int
    states: Mapping[str, int]
    is_complete: bool = True
    as_of: datetime = field(default_factory=lambda: datetime.now(UTC))
