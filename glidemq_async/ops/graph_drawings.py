"""Drawings of the graph of a flow: SVG, and the text of Mermaid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final
from xml.sax.saxutils import quoteattr

from glidemq_async.ops.drawings import box, clean, css_name, fitted, frame, text
from glidemq_async.ops.graph_layout import layout_of
from glidemq_async.ops.graph_parts import GraphNode, GraphParts

_WIDTH: Final = 190.0
_HEIGHT: Final = 46.0
_ACROSS: Final = 64.0
"""The space between two levels."""
_DOWN: Final = 14.0
_MARGIN: Final = 16.0
_PAD: Final = 10.0
_BEND: Final = 10.0
"""The height that an edge needs in a level that it crosses."""


def graph_svg(graph: GraphParts, *, styled: bool, link: Callable[[GraphNode], str] | None) -> str:
    """Return a graph as SVG. Jobs run from the left to the right."""
    layout = layout_of([node.level for node in graph.nodes], graph.edges)
    count = len(graph.nodes)
    heights = [_height(column, count) for column in layout.columns]
    highest = max(heights, default=_HEIGHT)
    places = {
        number: place
        for level, (column, height) in enumerate(zip(layout.columns, heights, strict=True))
        for number, place in _places(column, count, level, _MARGIN + (highest - height) / 2)
    }
    width = len(layout.columns) * (_WIDTH + _ACROSS) - _ACROSS + 2 * _MARGIN
    body = [_edge([places[number] for number in path]) for path in layout.paths]
    body += [_node(node, places[number], link) for number, node in enumerate(graph.nodes)]
    return frame(width, highest + 2 * _MARGIN, _title(graph), _description(graph), body, styled=styled)


def _height(column: Sequence[int], count: int) -> float:
    return sum((_HEIGHT if number < count else _BEND) + _DOWN for number in column) - _DOWN


def _places(column: Sequence[int], count: int, level: int, top: float) -> Iterator[tuple[int, tuple[float, float]]]:
    """Return the left edge and the middle of each node and bend."""
    x = _MARGIN + level * (_WIDTH + _ACROSS)
    for number in column:
        height = _HEIGHT if number < count else _BEND
        yield number, (x, top + height / 2)
        top += height + _DOWN


def _edge(places: Sequence[tuple[float, float]]) -> str:
    (x, y), *rest = places
    x += _WIDTH
    way = f"M{x:.1f} {y:.1f}"
    for at, (left, middle) in enumerate(rest):
        is_last = at == len(rest) - 1
        end = left - 6 if is_last else left
        half = (x + end) / 2
        way += f"C{half:.1f} {y:.1f} {half:.1f} {middle:.1f} {end:.1f} {middle:.1f}"
        if not is_last:
            way += f"H{left + _WIDTH:.1f}"
        x, y = left + _WIDTH, middle
    tip = rest[-1][0]
    return f'<path class="edge" d="{way}"/><path class="tip" d="M{tip:.1f} {y:.1f}l-8 -4v8z"/>'


def _node(node: GraphNode, place: tuple[float, float], link: Callable[[GraphNode], str] | None) -> str:
    x, middle = place
    top = middle - _HEIGHT / 2
    name = _name(node)
    inner = (
        f"<title>{clean(_tip(node))}</title>{box(x, top, _WIDTH, _HEIGHT)}"
        f"{text(x + _PAD, top + 19, fitted(name, _WIDTH - 2 * _PAD))}"
        f"{text(x + _PAD, top + 36, fitted(f'{node.state} · {node.queue}', _WIDTH - 2 * _PAD), 'faint')}"
    )
    if link is not None and node.count == 1:
        inner = f"<a href={quoteattr(link(node))}>{inner}</a>"
    focus = " focus" if node.is_focus else ""
    return f'<g class="node {css_name(node.state)}{focus}">{inner}</g>'


def _name(node: GraphNode) -> str:
    return node.name or node.id if node.count == 1 else f"{node.count:,} x {node.name}"


def _tip(node: GraphNode) -> str:
    who = f"{node.name} {node.id} in {node.queue}" if node.count == 1 else f"{node.count:,} jobs in {node.queue}"
    return f"{who}: {node.state}{': ' if node.reason else ''}{node.reason}"


def _title(graph: GraphParts) -> str:
    return f"Flow of job {graph.id} in queue {graph.queue}"


def _description(graph: GraphParts) -> str:
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(graph.states.items()))
    return f"{graph.total:,} jobs: {states}. Jobs on the right wait for jobs on the left."


_CLASSES: Final = {
    "completed": "fill:#e4f5e7,stroke:#2e7d32,color:#1f2430",
    "failed": "fill:#fde7e7,stroke:#c62828,color:#1f2430",
    "active": "fill:#e3effc,stroke:#1565c0,color:#1f2430",
}


def graph_mermaid(graph: GraphParts) -> str:
    """Return a graph as a flowchart of Mermaid."""
    lines = ["flowchart LR", f"  accTitle: {_quoted(_title(graph))}", f"  accDescr: {_quoted(_description(graph))}"]
    for number, node in enumerate(graph.nodes):
        name = _name(node)
        css = f":::{node.state}" if node.state in _CLASSES else ""
        lines.append(f'  n{number}["{_quoted(name)}<br/>{_quoted(node.state)} · {_quoted(node.queue)}"]{css}')
    lines += [f"  n{child} --> n{parent}" for child, parent in graph.edges]
    lines += [f"  classDef {state} {style}" for state, style in _CLASSES.items()]
    return "\n".join(lines) + "\n"


def _quoted(content: str) -> str:
    """Return a text for Mermaid, in which other characters than these have entities."""
    return "".join(c if c.isalnum() or c in " .,:-_/·@+" else f"#{ord(c)};" for c in content)
