"""OpenTelemetry's own in-memory exporters, and readers of their data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from glidemq_async.telemetry import OpenTelemetry


class Recorder:
    """Keeps the spans and metrics of one instrumentation."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.telemetry = OpenTelemetry(tracer_provider=self.tracers, meter_provider=meters, **options)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Return the ended spans whose name begins with this text, in the order of their ends."""
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith(name)]

    def counts(self, metric: str) -> dict[tuple[str, str], float]:
        """Return the number of measurements of a metric, by queue and type of error."""
        data = self._reader.get_metrics_data()
        found: dict[tuple[str, str], float] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for each in scope.metrics:
                    if each.name == metric:
                        for point in each.data.data_points:
                            labels = attributes(point)
                            key = (labels["messaging.destination.name"], labels.get("error.type", ""))
                            count = getattr(point, "count", None)
                            found[key] = found.get(key, 0) + (point.value if count is None else count)  # type: ignore[union-attr]
        return found

    def gauges(self, metric: str) -> dict[tuple[str, str], float]:
        """Return the values of a gauge by queue and state of jobs."""
        data = self._reader.get_metrics_data()
        return {
            (labels["messaging.destination.name"], labels.get("glidemq.job.state", "")): getattr(point, "value", 0)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for each in scope.metrics
            if each.name == metric
            for point in each.data.data_points
            for labels in [attributes(point)]
        }


def attributes(one: Any) -> Mapping[str, Any]:
    """Return the attributes of a span or a measurement."""
    return dict(one.attributes or {})
