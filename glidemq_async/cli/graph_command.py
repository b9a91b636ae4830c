"""The commands that draw runs of workflows and flows: `glidemq workflows graph` and `glidemq workflows waterfall`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, CommandTarget, JobId, QueueName, with_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glidemq_async.cli.output import Document
    from glidemq_async.ops.graphs import FlowGraph
    from glidemq_async.ops.waterfall_parts import WaterfallRow

Svg: TypeAlias = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write a drawing to this file.")]
Mermaid: TypeAlias = Annotated[bool, typer.Option("--mermaid", help="Print a flowchart of Mermaid.")]


@with_target
def graph(
    target: CommandTarget,
    queue: QueueName,
    job_id: JobId,
    svg: Svg = None,
    mermaid: Mermaid = False,
    as_json: AsJson = False,
) -> None:
    """Draw the flow of a job, or a run with the tasks that it has called. Any job of the flow selects it."""
    from glidemq_async.cli import targets

    async def look() -> Document:
        from glidemq_async.ops.graphs import read_flow_graph

        async with targets.open_queue(queue, target) as opened:
            found = await read_flow_graph(opened, job_id)
        _write(svg, found.to_svg)
        return _graph_document(found)

    answer(look(), lambda document: _show_graph(document, svg, mermaid=mermaid), as_json=as_json)


def _graph_document(graph: FlowGraph) -> Document:
    from dataclasses import asdict

    shown = graph.collapsed()
    return {
        "queue": graph.queue,
        "id": graph.id,
        "total": graph.total,
        "complete": graph.is_complete,
        "states": dict(graph.states),
        "nodes": [asdict(node) for node in shown.nodes],
        "edges": [list(edge) for edge in shown.edges],
        "mermaid": shown.to_mermaid(),
    }


def _show_graph(document: Document, svg: Path | None, *, mermaid: bool) -> None:
    from glidemq_async.cli import output, tables

    if mermaid:
        typer.echo(document["mermaid"], nl=False)
    elif svg is not None:
        typer.echo(f"wrote {svg}: {output.counted(document['total'], 'job')}")
    else:
        rows: Sequence[Sequence[Any]] = [
            [
                one["id"] or output.counted(one["count"], "job"),
                one["name"],
                one["queue"],
                one["level"],
                one["state"],
                one["reason"],
            ]
            for one in sorted(document["nodes"], key=lambda node: node["level"])
        ]
        tables.print_table(["id", "name", "queue", "level", "state", "reason"], rows, empty="no jobs")


@with_target
def waterfall(target: CommandTarget, queue: QueueName, job_id: JobId, svg: Svg = None, as_json: AsJson = False) -> None:
    """Show when a run has executed its steps, has waited, and has called tasks."""
    from glidemq_async.cli import targets

    async def look() -> Document:
        from glidemq_async.ops.waterfall import read_waterfall

        async with targets.open_queue(queue, target) as opened:
            found = await read_waterfall(opened, job_id)
        _write(svg, found.to_svg)
        return {
            "queue": found.queue,
            "id": found.id,
            "name": found.name,
            "state": found.state,
            "rows": [_row(row) for row in found.rows],
        }

    answer(look(), lambda document: _show_waterfall(document, svg), as_json=as_json)


def _row(row: WaterfallRow) -> Document:
    from glidemq_async.cli.output import instant

    ended = row.ended_at
    return {
        "kind": row.kind,
        "name": row.name,
        "outcome": row.outcome,
        "attempt": row.attempt,
        "started_at": instant(row.started_at),
        "ended_at": instant(ended),
        "seconds": None if ended is None else round((ended - row.started_at).total_seconds(), 3),
        "detail": row.detail,
    }


def _show_waterfall(document: Document, svg: Path | None) -> None:
    from glidemq_async.cli import output, tables

    if svg is not None:
        typer.echo(f"wrote {svg}: {output.counted(len(document['rows']), 'row')}")
        return
    columns = ["started_at", "seconds", "kind", "name", "outcome", "detail"]
    rows = [[one[column] for column in columns] for one in document["rows"]]
    tables.print_table(["started", *columns[1:]], rows, empty="no rows")


def _write(path: Path | None, draw: Callable[[], str]) -> None:
    if path is not None:
        path.write_text(draw(), encoding="utf-8")
