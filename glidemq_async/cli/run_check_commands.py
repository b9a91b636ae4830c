"""The commands that export runs, and check whether they fit new code. `glidemq workflows` has them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AppDir, AsJson, CommandTarget, QueueName, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document

_MOST_SHOWN = 50


@with_target
def export(
    target: CommandTarget,
    queue: QueueName,
    wanted: Annotated[
        str, typer.Argument(metavar="FILTER", help="A filter; see docs/finding.md.")
    ] = "-state:completed,failed",
    as_json: AsJson = False,
) -> None:
    """Print each run with recorded steps as a line of JSON, for `glidemq workflows check`.

    The lines contain arguments and results without the codecs of the queue, so protect the file.
    """
    from glidemq_async.cli import output, targets
    from glidemq_async.tasks.run_checks import export_runs

    async def work() -> Document:
        async with targets.open_queue(queue, target) as opened:
            count = 0
            async for run in export_runs(opened, wanted):
                typer.echo(run.to_json())
                count += 1
            return {"exported": count}

    found = targets.run(work())
    if not as_json:
        typer.echo(f"exported {output.counted(found['exported'], 'run')}", err=True)


def check(
    app: Annotated[str, typer.Argument(metavar="APP", help="The app with the new code, as module:name.")],
    path: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="Runs of `export`.")],
    app_dir: AppDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Replay exported runs with the code of an app, and report which of them could not continue with it.

    Needs no server, and executes no step. Code of a workflow outside of its steps is executed. The exit code is 1 if a
    run does not fit.
    """
    from glidemq_async.cli import apps
    from glidemq_async.cli.exits import FAILED
    from glidemq_async.tasks.run_checks import check_exported
    from glidemq_async.workflows.replaying import ExportedRun

    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    try:
        runs = [ExportedRun.from_json(line) for line in lines]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="FILE") from None
    loaded = apps.load(app, app_dir)

    async def work() -> Document:
        replays = await check_exported(await apps.app_of(app, loaded), runs)
        return {"runs": [{**asdict(one), "fits": one.fits} for one in replays]}

    found = answer(work(), _show_checked, as_json=as_json)
    if not all(one["fits"] for one in found["runs"]):
        raise typer.Exit(FAILED)


def _show_checked(document: Document) -> None:
    from glidemq_async.cli import tables

    counts = Counter((one["workflow"], one["verdict"]) for one in document["runs"])
    rows: list[list[object]] = [[*key, count] for key, count in sorted(counts.items())]
    tables.print_table(["workflow", "verdict", "runs"], rows, empty="no runs")
    broken = [one for one in document["runs"] if not one["fits"]]
    if broken:
        typer.echo()
        shown = [
            [one["id"], one["workflow"], ", ".join(one["left"]), ", ".join(one["asked"]), one["reason"]]
            for one in broken[:_MOST_SHOWN]
        ]
        tables.print_table(["id", "workflow", "recorded", "asked for", "reason"], shown, empty="")
    if len(broken) > _MOST_SHOWN:
        typer.echo(f"{len(broken) - _MOST_SHOWN} more runs do not fit; --json lists them", err=True)
