"""The routes of the pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.routing import BaseRoute, Route

from glidemq_async.web.pages import (
    alert_pages,
    change_pages,
    failure_pages,
    job_pages,
    log_in,
    operation_pages,
    overview_pages,
    store_pages,
)
from glidemq_async.web.pages.handling import Handler, error_page, page
from glidemq_async.web.pages.static_files import STATIC_PATH, static_file
from glidemq_async.web.state import GatePages

# Names of queues and ids of jobs may contain slashes, so longer paths are before shorter ones.
PAGES: Final[Sequence[tuple[str, Handler]]] = (
    ("/", overview_pages.show_overview),
    ("/failures", failure_pages.show_failures),
    ("/failures/{fingerprint}", failure_pages.show_failure),
    ("/operations", operation_pages.show_operations),
    ("/operations/{operation}", operation_pages.show_operation),
    ("/jobs", job_pages.show_jobs),
    ("/workers", overview_pages.show_workers),
    ("/workflows", job_pages.show_workflows),
    ("/keys", job_pages.show_keys),
    ("/schedules", overview_pages.show_schedules),
    ("/alerts", alert_pages.show_alerts),
    ("/dead-letters", store_pages.show_dead_letters),
    ("/store", store_pages.show_store),
    ("/audit", store_pages.show_audit),
    ("/change/{change}", change_pages.show_change),
    ("/queues", overview_pages.show_queues),
    ("/queues/{queue:path}/jobs/{job:path}", job_pages.show_job),
    ("/queues/{queue:path}/runs/{job:path}", job_pages.show_run),
    ("/queues/{queue:path}", overview_pages.show_queue),
)
FORMS: Final[Sequence[tuple[str, Handler]]] = (
    ("/operations/preview", operation_pages.preview_operation),
    ("/operations/{operation}/start", operation_pages.start_operation),
    ("/change/{change}", change_pages.make_change),
    ("/theme", change_pages.choose_theme),
    ("/log-out", log_in.log_out),
)


def gate_pages() -> GatePages:
    """Return the pages for clients that were not admitted."""
    return GatePages(error_page, log_in.log_in)


def page_routes() -> list[BaseRoute]:
    """Return the routes of the pages, of their forms and of their files."""
    return [
        Route(f"/{STATIC_PATH}/{{name:path}}", static_file, methods=["GET"]),
        *(Route(path, page(handler), methods=["POST"]) for path, handler in FORMS),
        *(Route(path, page(handler), methods=["GET"]) for path, handler in PAGES),
    ]
