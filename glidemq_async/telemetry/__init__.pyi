from glidemq_async._internal.http_endpoint import HttpEndpoint as HttpEndpoint
from glidemq_async._internal.http_endpoint import Page as Page
from glidemq_async.telemetry.logs import JobFilter as JobFilter
from glidemq_async.telemetry.logs import JobLogging as JobLogging
from glidemq_async.telemetry.logs import JsonFormatter as JsonFormatter
from glidemq_async.telemetry.opentelemetry import OpenTelemetry as OpenTelemetry
from glidemq_async.telemetry.prometheus import Prometheus as Prometheus
