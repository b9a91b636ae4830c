"""Small drawings as SVG: trends, meters and the chart of the throughput. Browsers need no script for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from markupsafe import Markup

__all__ = ["chart", "meter", "nice_top", "spark"]


def spark(values: Sequence[float], label: str, *, tone: str = "") -> Markup:
    """Return the bars of a trend, the latest at the right. `label` is read to people who do not see it."""
    return Markup(
        '<svg class="spark {}" viewBox="0 0 112 26" role="img" aria-label="{}" preserveAspectRatio="none">{}</svg>'
    ).format(tone, label, Markup(_bars(tuple(values))))  # noqa: S704 - the bars contain only numbers


# A page of queues has thousands of bars, and many queues have none that end jobs. `Markup.format` would take most of
# the time of the page, so the bars are formatted as plain text.
@lru_cache(maxsize=256)
def _bars(values: tuple[float, ...]) -> str:
    count = max(len(values), 1)
    top = max([*values, 1])
    width = 112 / count
    return "".join([_bar(index * width, max(width - 1, 0.6), value / top * 24) for index, value in enumerate(values)])


def _bar(left: float, width: float, height: float) -> str:
    if height <= 0:
        return f'<rect class="base" x="{left:.1f}" y="25" width="{width:.1f}" height="1"/>'
    height = max(height, 2)
    return f'<rect x="{left:.1f}" y="{26 - height:.1f}" width="{width:.1f}" height="{height:.1f}" rx="1"/>'


def meter(used: float, total: float | None, label: str, *, second: float = 0, tone: str = "") -> Markup:
    """Return a bar that shows `used` of `total`, and a second part beside it."""
    whole = max(total or 0, used + second, 1e-9)
    first, rest = used / whole * 100, second / whole * 100
    return Markup(
        '<svg class="meter {}" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="bg" width="100" height="8" rx="1"/><rect class="a" width="{:.2f}" height="8"/>'
        '<rect class="b" x="{:.2f}" width="{:.2f}" height="8"/></svg>'
    ).format(tone, label, first, first, rest)


def nice_top(value: float) -> float:
    """Return the next round number above a value, for the top of an axis."""
    for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000):
        if value <= step:
            return step
    return value


def chart(series: Sequence[tuple[str, Sequence[float]]], label: str) -> Markup:
    """Return lines over the same minutes. A series is a class and its values; the class `out` is filled."""
    top = nice_top(max([value for _, values in series for value in values] or [1]))
    grid = [
        Markup('<line class="grid" x1="0" x2="600" y1="{0}" y2="{0}" vector-effect="non-scaling-stroke"/>').format(y)
        for y in (8, 66, 124, 182)
    ]
    lines = [_line(name, values, top) for name, values in series]
    return Markup('<svg viewBox="0 0 600 190" preserveAspectRatio="none" role="img" aria-label="{}">{}{}</svg>').format(
        label, Markup("").join(grid), Markup("").join(lines)
    )


def _line(name: str, values: Sequence[float], top: float) -> Markup:
    step = 600 / max(len(values) - 1, 1)
    points = [f"{index * step:.1f},{182 - value / top * 174:.1f}" for index, value in enumerate(values)]
    if not points:
        return Markup("")
    path = "M" + "L".join(points)
    area = Markup('<path class="area" d="{}L600,182L0,182Z"/>').format(path) if name == "out" else Markup("")
    return area + Markup('<path class="{}" d="{}"/>').format(name, path)
