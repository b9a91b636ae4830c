"""Telemetry: spans and metrics for OpenTelemetry, a /metrics endpoint for Prometheus, job fields in log records.

All parts are optional. Pass them to queues and workers as `instrumentation`; see docs/telemetry.md.
"""

from glidemq_async._internal import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
