"""The headers that instrumentation adds to a job."""

from __future__ import annotations

import logging
from typing import Final

from glidemq_async.errors import PayloadTooLarge
from glidemq_async.instrumentation import Addition
from glidemq_async.options.job_options import JobOptions

_log: Final = logging.getLogger(__name__)


def with_added_headers(options: JobOptions, addition: Addition) -> JobOptions:
    """Return the options with the headers that instrumentation has set, or the original ones if those are invalid."""
    try:
        return options.with_headers(addition.headers)
    except (TypeError, ValueError, PayloadTooLarge) as error:
        _log.warning("job %r is added without telemetry headers, because they are invalid: %s", addition.name, error)
        return options
