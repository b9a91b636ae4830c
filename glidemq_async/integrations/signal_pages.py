"""The pages behind signed links: GET shows the question, POST sends the signal."""

from __future__ import annotations

import html
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, Response
    from starlette.routing import Route
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs {error.name}: pip install starlette, or 'glidemq-async[fastapi]'") from error

from glidemq_async.errors import DuplicateSignal, JobNotFound, JobStateError, MailboxFull, StorageUnavailable
from glidemq_async.integrations.queues import AnyQueue
from glidemq_async.integrations.signal_links import LinkRefused, SignalLink, SignalLinks
from glidemq_async.integrations.starlette import queues_of

__all__ = ["signal_link_app"]

QueueOf: TypeAlias = Callable[[str], AnyQueue]
Describe: TypeAlias = Callable[[SignalLink], str]

# A page with a button, because mail programs and scanners open links with GET. The token must not reach other sites,
# caches or frames: whoever has it can answer.
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"
    ),
}
_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>body{{font:1.1rem system-ui;max-width:36rem;margin:4rem auto;padding:0 1rem}}
button{{font:inherit;padding:.5rem 1.5rem}}</style>
<p>{text}</p>{form}</html>
"""
_FORM: Final = '<form method="post"><button>Confirm</button></form>'


def signal_link_app(links: SignalLinks, *, queue: QueueOf | None = None, describe: Describe | None = None) -> Starlette:
    """Return an app that answers signed links: `app.mount("/answers", signal_link_app(links))`, also in FastAPI.

    GET shows a page with a button, and POST sends the signal. The status is 400 for a link that was not signed here or
    was changed, 410 for one that has expired or was answered and for a job that has ended, 404 for an unknown job, and
    503 without the store.

    - `queue` returns the queue of a name. By default it is a queue of the lifespan of this module.
    - `describe` returns the text of the page, which is escaped. By default it names the signal and the job.
    """

    async def show(request: Request) -> Response:
        link = links.read(request.path_params["token"])
        return _page(200, _described(link, describe), form=True)

    async def send(request: Request) -> Response:
        link = links.read(request.path_params["token"])
        found = queues_of(request).get(link.queue) if queue is None else queue(link.queue)
        await found.signal(link.job_id, link.name, link.data, once=link.question)
        return _page(200, "Thank you. Your answer was sent.")

    route = Route("/{token}", _guarded(show), methods=["GET"])
    return Starlette(routes=[route, Route("/{token}", _guarded(send), methods=["POST"])])


def _guarded(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except LinkRefused as refused:
            return _page(410 if refused.expired else 400, str(refused))
        except DuplicateSignal:
            return _page(410, "This question was already answered.")
        except JobStateError:
            return _page(410, "This question is no longer open.")
        except JobNotFound:
            return _page(404, "This question is no longer known.")
        except (StorageUnavailable, MailboxFull):
            return _page(503, "Your answer could not be sent. Try again in a minute.")

    return answer


def _described(link: SignalLink, describe: Describe | None) -> str:
    return f"Send “{link.name}” to job {link.job_id} of {link.queue}?" if describe is None else describe(link)


def _page(status: int, text: str, *, form: bool = False) -> Response:
    shown = html.escape(text)
    page = _PAGE.format(title=shown, text=shown, form=_FORM if form else "")
    return HTMLResponse(page, status, headers=dict(_HEADERS))
