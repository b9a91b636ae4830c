"""The charts of a report, drawn with matplotlib without a display."""

# matplotlib's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from matplotlib import dates
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from glidemq_async.spark.pipeline.durations import duration
from glidemq_async.spark.pipeline.slo import PAIRS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from glidemq_async.spark.pipeline.figures import Percentiles, PipelineFigures

# Any: matplotlib.dates has no annotations.
_dates: Any = dates

INK: Final = "#1f2933"
MUTED: Final = "#7b8794"
GRID: Final = "#e4e7eb"
BLUE: Final = "#2f6fde"
TEAL: Final = "#12a594"
RED: Final = "#d64545"
AMBER: Final = "#e8a33d"
VIOLET: Final = "#7c5cd6"
KIND_COLORS: Final = {"failed": RED, "retried": AMBER, "stalled": VIOLET, "dead-lettered": MUTED}
BURN_COLORS: Final = (RED, AMBER, VIOLET, BLUE)
# Legends are above the axes, where they hide no data.
_ABOVE: Final[dict[str, Any]] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0.2}
DPI: Final = 150
MOST_CAUSES: Final = 10
# The limits of the burn rate axis: both thresholds are visible, and very high rates do not flatten the others.
MIN_BURN_AXIS: Final = 16.0
MAX_BURN_AXIS: Final = 30.0


def charts(figures: PipelineFigures) -> dict[str, bytes]:
    """Return the charts as PNG, by name: throughput, latency, failures, burn."""
    return {
        "throughput": _png(throughput(figures)),
        "latency": _png(latency(figures)),
        "failures": _png(failures(figures)),
        "burn": _png(burn(figures)),
    }


def throughput(figures: PipelineFigures) -> Figure:
    """Draw jobs added and ended per second, and the number of open jobs."""
    figure, (rates, backlog) = _stacked(2, 5.0, (2.2, 1))
    at = [_dates.date2num(point.at) for point in figures.points]
    _draw_rates(rates, at, figures)
    _draw_backlog(backlog, at, figures)
    _time_axis(backlog)
    return figure


def _draw_rates(rates: Axes, at: Sequence[float], figures: PipelineFigures) -> None:
    points, step = figures.points, figures.step
    completed = [point.completed / step for point in points]
    failed = [point.failed / step for point in points]
    width = step / 86_400
    rates.bar(at, completed, width, align="edge", color=TEAL, label="completed", linewidth=0)
    rates.bar(at, failed, width, bottom=completed, align="edge", color=RED, label="failed", linewidth=0)
    ends = [*at, at[-1] + width]
    rates.stairs([point.added / step for point in points], ends, color=INK, linewidth=1.2, label="added")
    rates.set_ylabel("jobs per second")
    rates.set_ylim(bottom=0)
    rates.legend(ncols=3, **_ABOVE)


def _draw_backlog(backlog: Axes, at: Sequence[float], figures: PipelineFigures) -> None:
    counts = [point.open for point in figures.points]
    backlog.fill_between(at, counts, step="post", color=BLUE, alpha=0.2, linewidth=0)
    backlog.step(at, counts, where="post", color=BLUE, linewidth=1.2)
    backlog.set_ylabel("open jobs")
    backlog.set_ylim(bottom=0)
    backlog.yaxis.set_major_locator(MaxNLocator(3, integer=True))


def latency(figures: PipelineFigures) -> Figure:
    """Draw the percentiles of wait and run times."""
    figure, (waits, runs) = _stacked(2, 5.4, (1, 1))
    for axes, name, values in (
        (waits, "wait before start", [(point.at, point.wait) for point in figures.points]),
        (runs, "run", [(point.at, point.run) for point in figures.points]),
    ):
        _percentiles(axes, [_dates.date2num(at) for at, _ in values], [spread for _, spread in values])
        axes.set_ylabel(name)
    waits.legend(ncols=3, **_ABOVE)
    _time_axis(runs)
    return figure


def failures(figures: PipelineFigures) -> Figure:
    """Draw the causes of failures, retries and stalls."""
    by_cause = _count_causes(figures)
    shown = sorted(by_cause, key=lambda cause: sum(by_cause[cause].values()))[-MOST_CAUSES:]
    figure, (axes,) = _stacked(1, max(1.6, 0.9 + 0.42 * len(shown)), (1,))
    if not shown:
        return _empty(figure, axes, "no job failed, was retried or stalled")
    _draw_bars(axes, shown, by_cause)
    axes.set_xlabel("times")
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color=GRID)
    axes.margins(x=0.08)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(ncols=3, **_ABOVE)
    return figure


def _count_causes(figures: PipelineFigures) -> dict[str, dict[str, int]]:
    """Return the counts by cause and kind, without dead letters, which are failures already."""
    by_cause: dict[str, dict[str, int]] = defaultdict(dict)
    for found in figures.causes:
        if found.kind != "dead-lettered":
            cause = f"lease expired, {found.cause}" if found.kind == "stalled" else found.cause
            by_cause[cause][found.kind] = found.n
    return by_cause


def _draw_bars(axes: Axes, shown: Sequence[str], by_cause: dict[str, dict[str, int]]) -> None:
    left = [0] * len(shown)
    for kind in ("failed", "retried", "stalled"):
        counts = [by_cause[cause].get(kind, 0) for cause in shown]
        if any(counts):
            axes.barh(shown, counts, left=left, height=0.62, color=KIND_COLORS[kind], label=kind, linewidth=0)
            left = [a + b for a, b in zip(left, counts, strict=True)]
    for row, total in enumerate(left):
        axes.annotate(f"{total:,}", (total, row), (4, 0), textcoords="offset points", va="center", color=MUTED)


def burn(figures: PipelineFigures) -> Figure:
    """Draw the burn rate of each window, and the thresholds of alerts."""
    figure, (axes,) = _stacked(1, 3.2, (1,))
    burns = figures.burns
    if not burns:
        return _empty(figure, axes, "no job has ended")
    at = [_dates.date2num(each.at) for each in burns]
    marker = "o" if len(at) < 3 else None
    for number, length in enumerate(length for pair in PAIRS for length in (pair.short, pair.long)):
        rates = [min(each.rates[number], MAX_BURN_AXIS) for each in burns]
        name = duration(60_000 * length)
        axes.plot(at, rates, color=BURN_COLORS[number], linewidth=1.4, label=name, marker=marker, markersize=4)
    _limit_burn_axis(axes, max(max(each.rates) for each in burns))
    _draw_thresholds(axes)
    axes.legend(ncols=4, **_ABOVE)
    _time_axis(axes)
    return figure


def _limit_burn_axis(axes: Axes, highest: float) -> None:
    axes.set_ylim(0, min(max(MIN_BURN_AXIS, 1.1 * highest), MAX_BURN_AXIS))
    axes.set_ylabel("burn rate (1 = exactly the budget)")


def _draw_thresholds(axes: Axes) -> None:
    for pair in PAIRS:
        axes.axhline(pair.factor, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(
            f"{pair.factor:g} times the budget on both {duration(60_000 * pair.short)} and "
            f"{duration(60_000 * pair.long)}: alert",
            (0, pair.factor),
            (4, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            color=MUTED,
            fontsize=7.5,
        )


def _percentiles(axes: Axes, at: Sequence[float], spreads: Sequence[Percentiles]) -> None:
    measured = [spread for spread in spreads if spread.p50 is not None]
    if not measured:
        axes.annotate("no data", (0.5, 0.5), xycoords="axes fraction", ha="center", color=MUTED)
        return
    # The clock counts milliseconds, and 0 has no logarithm, so 1 ms is the minimum. Lines have gaps where data is
    # missing.
    p50, p95, p99 = (
        [math.nan if value is None else max(value, 1) for value in values] for values in zip(*spreads, strict=True)
    )
    axes.fill_between(at, p50, p95, color=BLUE, alpha=0.12, linewidth=0)
    for values, color, name in ((p50, BLUE, "p50"), (p95, AMBER, "p95"), (p99, RED, "p99")):
        axes.plot(at, values, color=color, linewidth=1.3, label=name, marker="o", markersize=2)
    _scale(axes, measured)


def _scale(axes: Axes, measured: Sequence[Percentiles]) -> None:
    """Choose a logarithmic axis if the values differ by more than a factor of 50."""
    if max(spread.p99 or 1 for spread in measured) > 50 * min(spread.p50 or 1 for spread in measured):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(10, numticks=6))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(_tick))


def _tick(value: float, _position: int | None) -> str:
    return duration(value)


def _stacked(rows: int, height: float, ratios: Sequence[float]) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(9, height), layout="constrained", facecolor="white")
    made = figure.subplots(rows, 1, sharex=rows > 1, squeeze=False, height_ratios=list(ratios))
    listed: list[Axes] = [row[0] for row in made]
    for axes in listed:
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(GRID)
        axes.tick_params(which="both", colors=MUTED, labelsize=8.5, length=0)
        axes.yaxis.label.set_color(INK)
        axes.xaxis.label.set_color(INK)
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, listed


def _time_axis(axes: Axes) -> None:
    locator = _dates.AutoDateLocator(minticks=4, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(_dates.ConciseDateFormatter(locator))
    axes.set_xlabel("time, UTC")


def _empty(figure: Figure, axes: Axes, text: str) -> Figure:
    axes.set_axis_off()
    axes.annotate(text, (0.5, 0.5), xycoords="axes fraction", ha="center", color=MUTED)
    return figure


def _png(figure: Figure) -> bytes:
    for axes in figure.axes:
        legend = axes.get_legend()
        if legend is not None:
            legend.set_frame_on(False)
            for text in legend.get_texts():
                text.set_fontsize(8.5)
                text.set_color(INK)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI)
    return out.getvalue()
