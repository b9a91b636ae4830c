"""The part of a flow that the options of its jobs contain; the Lua side is functions/flow_jobs.lua."""

from __future__ import annotations

from typing import Final, NamedTuple, cast

import msgpack

_FIELD: Final = "F"
_MARK: Final = b"\xa1F"


class JobRef(NamedTuple):
    """The name of a queue, and the id of a job in it."""

    queue: str
    job_id: str


class FlowRef(NamedTuple):
    """A job's place in its flow. `home` is the base key of the queue with the plan, "" for the job's own queue."""

    home: str
    flow: str
    stamp: str
    node: int
    parents: tuple[JobRef, ...]


def flow_of(opts: bytes) -> FlowRef | None:
    """Return the place of a job in its flow from its packed options, None for a job without a flow."""
    if _MARK not in opts:
        return None
    found = cast("dict[str, object]", msgpack.unpackb(opts)).get(_FIELD)
    if not isinstance(found, list):
        return None
    # The server packs an empty list as an empty map.
    home, flow, stamp, node, parents = cast(
        "tuple[str, str, str, int, list[list[str]]]", tuple(cast("list[object]", found))
    )
    return FlowRef(home, flow, stamp, int(node), tuple(JobRef(*parent) for parent in parents))


def with_flow(opts: bytes, ref: FlowRef) -> bytes:
    """Return packed options that contain the place of the job in its flow."""
    options = cast("dict[str, object]", msgpack.unpackb(opts)) if opts else {}
    return msgpack.packb({**options, _FIELD: [*ref[:4], [list(parent) for parent in ref.parents]]})
