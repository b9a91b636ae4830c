"""A test that the runs in flight fit the code: replay the runs that `glidemq workflows export` has written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glidemq_async.tasks.app import GlideMQ
from glidemq_async.tasks.run_checks import check_exported
from glidemq_async.workflows.replaying import ExportedRun, RunReplay


async def check_runs(mq: GlideMQ[Any], path: str | Path) -> list[RunReplay]:
    """Replay the exported runs in a file with the workflows of an app. Return the replays.

    Raises AssertionError, which lists the runs that cannot continue with the present code, and ValueError for a file
    that is no export. Needs no server.
    """
    lines = Path(path).read_text(encoding="utf-8").splitlines()  # noqa: ASYNC240 - a test has nothing else to do
    replays = await check_exported(mq, [ExportedRun.from_json(line) for line in lines if line.strip()])
    broken = [one for one in replays if not one.fits]
    if broken:
        shown = "\n".join(f"  {one.id} ({one.workflow}): {described(one)}" for one in broken)
        raise AssertionError(f"{len(broken)} of {len(replays)} runs do not fit the code:\n{shown}")
    return replays


def described(replay: RunReplay) -> str:
    """Return the verdict of a replay with its evidence."""
    parts: list[str] = [replay.verdict]
    if replay.left:
        parts.append(f"recorded {', '.join(replay.left)}")
    if replay.asked:
        parts.append(f"asked for {', '.join(replay.asked)}")
    return "; ".join([*parts, replay.reason] if replay.reason else parts)
