"""Telemetry: spans and metrics for OpenTelemetry, a /metrics endpoint for Prometheus, job fields in log records.

All of it is optional, and given to queues and workers as `instrumentation`; see docs/telemetry.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glidemq_async.http_endpoint import HttpEndpoint, Page
    from glidemq_async.telemetry.logs import JobFilter, JobLogging, JsonFormatter
    from glidemq_async.telemetry.opentelemetry import OpenTelemetry
    from glidemq_async.telemetry.prometheus import Prometheus
else:
    from glidemq_async import lazy

    __getattr__, __dir__ = lazy.attributes(
        __name__,
        {
            "..http_endpoint": "HttpEndpoint Page",
            ".logs": "JobFilter JobLogging JsonFormatter",
            ".opentelemetry": "OpenTelemetry",
            ".prometheus": "Prometheus",
        },
    )

__all__ = ["HttpEndpoint", "JobFilter", "JobLogging", "JsonFormatter", "OpenTelemetry", "Page", "Prometheus"]
