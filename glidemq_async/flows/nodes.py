"""The nodes of flows as a program writes them, and the jobs that they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from glidemq_async.jobs.job import Job
from glidemq_async.options.job_options import JobOptions

FailurePolicy: TypeAlias = Literal["fail", "wait", "collect", "ignore", "remove"]
POLICIES: Final[tuple[FailurePolicy, ...]] = get_args(FailurePolicy)


@dataclass(frozen=True, slots=True)
class FlowJob:
    """A job of a tree, with the jobs that must end before it starts: its `children`.

    `name` is the name of the job, and `queue_name` is the name of its queue. `data` is its payload, and `options` are
    its JobOptions.

    `on_failure` decides what happens to the parent of this job if this job ends without a result: because it fails,
    expires, or is revoked or removed.

    - "fail" (the default): the parent fails immediately. Its other children are removed, and running ones are revoked.
    - "wait": the parent fails when all of its children have ended.
    - "collect": the parent starts when all of its children have ended, and `Job.get_children_values` contains the
      failure as a JobFailed.
    - "ignore": the parent starts as well, and the values do not contain this job.
    - "remove": as "ignore", and `Job.get_dependencies` does not contain this job either.

    Raises TypeError or ValueError for an unknown policy, and for options with a deduplication.
    """

    name: str
    queue_name: str
    data: Any = None
    options: JobOptions | None = None
    children: Sequence[FlowJob] = ()
    on_failure: FailurePolicy = "fail"

    def __post_init__(self) -> None:
        check_node(self.name, self.options, self.on_failure)
        # A copy: a list that the program changes later must not change a flow that was checked.
        object.__setattr__(self, "children", tuple(self.children))
        for child in self.children:
            if not isinstance(child, FlowJob):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"each child of {self.name!r} must be a FlowJob, got {child!r}")


@dataclass(frozen=True, slots=True)
class DagNode:
    """A job of a graph. It starts after the jobs in `deps` have ended; these are names of other nodes.

    `name` is unique in the graph. The name of the job is `job_name`, or `name` if that is None. `queue_name` is the
    name of its queue, `data` its payload, and `options` are its JobOptions. `on_failure` applies to every node that
    depends on this one; see FlowJob.
    """

    name: str
    queue_name: str
    data: Any = None
    options: JobOptions | None = None
    deps: Sequence[str] = ()
    on_failure: FailurePolicy = "fail"
    job_name: str | None = None

    def __post_init__(self) -> None:
        check_node(self.name, self.options, self.on_failure)
        if isinstance(self.deps, str):
            raise TypeError(f"deps of node {self.name!r} must be a sequence of names, got the str {self.deps!r}")
        # A name that is given twice is one dependency.
        object.__setattr__(self, "deps", tuple(dict.fromkeys(self.deps)))


@dataclass(frozen=True, slots=True)
class JobNode:
    """The `job` of a node in a tree that was added, and the nodes of its `children`.

    A tree whose root existed already has no children here, because the existing tree may be another one.
    """

    job: Job[Any, Any]
    children: list[JobNode] = field(default_factory=list["JobNode"])


def check_node(name: str, options: JobOptions | None, on_failure: object) -> None:
    """Raise TypeError or ValueError unless a node can be a part of a flow."""
    if on_failure not in POLICIES:
        raise ValueError(f"on_failure of node {name!r} must be one of {', '.join(POLICIES)}, got {on_failure!r}")
    if options is not None and not isinstance(options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"options of node {name!r} must be JobOptions, got {options!r}")
    if options is not None and options.deduplication is not None:
        raise ValueError(
            f"node {name!r} has a deduplication, which could replace a job of the flow; use job_id= for the root of "
            "the flow instead"
        )
