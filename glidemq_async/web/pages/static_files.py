"""The files that browsers load: styles, the script, icons, the font, the charts. None comes from another server."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import Final

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
NAMES: Final = (
    "app.css",
    "app.js",
    "icons.svg",
    "mark.svg",
    "vendor/geist-latin.woff2",
    "vendor/uplot.min.css",
    "vendor/uplot.min.js",
)


@cache
def content(name: str) -> bytes:
    """Return the content of a file."""
    return resources.files("glidemq_async.web").joinpath("static", *name.split("/")).read_bytes()


def _digest() -> str:
    found = hashlib.sha256()
    for name in NAMES:
        found.update(content(name))
    return found.hexdigest()[:12]


# The digest is a part of the path, so that browsers can keep the files for ever and a new release has new addresses.
STATIC_PATH: Final = f"static/{_digest()}"


@cache
def mark() -> Markup:
    """Return the mark of the product as markup."""
    text = content("mark.svg").decode()
    return Markup(text.replace("<svg ", '<svg aria-hidden="true" ', 1).strip())  # noqa: S704 - a file of the package


async def static_file(request: Request) -> Response:
    """Serve a file."""
    name = request.path_params["name"]
    if name not in NAMES:
        raise HTTPException(404)
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(content(name), media_type=_TYPES[name.rpartition(".")[2]], headers=headers)
