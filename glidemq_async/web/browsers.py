"""Requests of browsers: they get pages, and other clients get documents."""

from __future__ import annotations

from typing import Final

from starlette.requests import HTTPConnection

API_PATH: Final = "/api/v1"
STATIC: Final = "/static/"
LOG_IN: Final = "/log-in"


def path_of(connection: HTTPConnection) -> str:
    """Return the path of a request below the path at which the app is mounted."""
    path, root = str(connection.scope["path"]), str(connection.scope.get("root_path", "")).rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def wants_page(connection: HTTPConnection) -> bool:
    """Return whether a client shows pages: it names their type, and does not ask the API."""
    path = path_of(connection)
    is_api = path == API_PATH or path.startswith(f"{API_PATH}/")
    return not is_api and "text/html" in connection.headers.get("accept", "")
