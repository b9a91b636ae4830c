"""The report: one HTML file with embedded charts, and the charts as PNG files."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from glidemq_async.spark.pipeline.bronze import Audit
from glidemq_async.spark.pipeline.durations import duration
from glidemq_async.spark.pipeline.figures import PipelineFigures


@dataclass(frozen=True)
class ReportFiles:
    """The files of a report."""

    page: Path
    pictures: tuple[Path, ...]


class Card(NamedTuple):
    """A figure at the top of the page."""

    label: str
    value: str
    tone: str = ""


class Section(NamedTuple):
    """A chart of the page with its title and text."""

    title: str
    text: str
    image: str


def save_report(
    figures: PipelineFigures, folder: Path, audits: Sequence[Audit], *, title: str | None = None
) -> ReportFiles:
    """Write report.html and a PNG per chart into the folder. Create the folder, and replace existing files."""
    # matplotlib takes a second to import, and a pipeline needs it only for reports.
    from glidemq_async.spark.pipeline.charts import charts

    folder.mkdir(parents=True, exist_ok=True)
    drawn = charts(figures)
    pictures: list[Path] = []
    for name, picture in drawn.items():
        path = folder / f"{name}.png"
        path.write_bytes(picture)
        pictures.append(path)
    page = folder / "report.html"
    page.write_text(render(figures, drawn, audits, title), encoding="utf-8")
    return ReportFiles(page, tuple(pictures))


def render(figures: PipelineFigures, drawn: dict[str, bytes], audits: Sequence[Audit], title: str | None = None) -> str:
    """Return the page as HTML."""
    # Names, errors and queues come from jobs, so the page escapes all texts. An undefined name is an error of the
    # template and must not become an empty place in a report.
    environment = Environment(
        loader=PackageLoader("glidemq_async.spark.pipeline"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["duration"] = duration
    environment.filters["count"] = _count
    template = environment.get_template("report.html.j2")
    return template.render(
        title=title or f"Jobs of {', '.join(figures.queues)}",
        figures=figures,
        cards=_cards(figures),
        sections=_sections(figures, drawn),
        audit=_audit(audits),
        made=datetime.now(UTC),
    )


def _cards(figures: PipelineFigures) -> list[Card]:
    total = figures.total
    ended = total.completed + total.failed
    rate = ended / figures.seconds if figures.seconds else 0.0
    alerts = sum(bool(burn.alerts) for burn in figures.burns)
    return [
        Card("jobs added", _count(total.added)),
        Card("completed", _count(total.completed), "good"),
        Card(f"failed ({_percent(total.failed, ended)})", _count(total.failed), "bad" if total.failed else ""),
        Card("retries", _count(total.retries)),
        Card("jobs ended per second", f"{rate:,.1f}"),
        Card("run, p99", duration(total.run.p99)),
        Card("end to end, p99", duration(total.end_to_end.p99)),
        Card("minutes with an SLO alert", _count(alerts), "bad" if alerts else ""),
    ]


def _sections(figures: PipelineFigures, drawn: dict[str, bytes]) -> list[Section]:
    slo = figures.slo
    late = f" or took longer than {duration(slo.latency_ms)}" if slo.latency_ms is not None else ""
    texts = {
        "throughput": ("Throughput", "Jobs added and ended per second, and the number of open jobs."),
        "latency": (
            "Latency",
            "Percentiles per interval, of the attempts that started (wait) or ended (run) in it.",
        ),
        "failures": ("Failures by cause", "Failed jobs, retries and stalls, by the class of the error."),
        "burn": (
            f"Burn rate of the error budget, with an objective of {100 * slo.objective:.4g} %",
            f"Jobs that failed{late} count against the budget, which is {_percent(slo.budget, 1)} of the ended jobs.",
        ),
    }
    return [Section(*texts[name], base64.b64encode(drawn[name]).decode()) for name in texts]


def _audit(audits: Sequence[Audit]) -> str:
    rows = sum(each.rows for each in audits)
    if all(each.clean for each in audits):
        return f"The report is based on {_count(rows)} events. None is missing or duplicated."
    missing, doubled = _count(sum(each.gap for each in audits)), _count(sum(each.doubled for each in audits))
    return f"The report is based on {_count(rows)} events. {missing} events are missing and {doubled} are duplicated."


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2g} %" if whole else "-"


def _count(number: Any) -> str:
    return f"{number:,}"
