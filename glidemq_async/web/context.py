"""The context of a request: the operations core for its actor, the identity, and the settings of the app."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.requests import HTTPConnection, Request

from glidemq_async.ops.access import PAYLOADS, AccessDenied, Identity, Role
from glidemq_async.ops.actor import Actor, Source
from glidemq_async.ops.core import Ops
from glidemq_async.web.problems import FormRefused
from glidemq_async.web.visibility import visible_part

if TYPE_CHECKING:
    from glidemq_async.web.state import WebState

CONTEXT: Final = "glidemq.operations"
FORM_COOKIE: Final = "glidemq_form"
FORM_FIELD: Final = "form_token"


@dataclass(slots=True)
class RequestContext:
    """The context of a request: all that its handler knows.

    `form_token` must be in every form of a page, as the field `form_token`.
    """

    web: WebState
    identity: Identity
    address: str
    form_token: str
    is_new_form_token: bool = field(default=False)

    def ops(self, source: Source) -> Ops:
        """Return the operations core for the user of the request."""
        return self.web.ops.acting_as(Actor(source, self.identity.name, self.address))

    def require(self, role: Role, queue: str = "", *, payloads: bool = False) -> None:
        """Raise AccessDenied if the user lacks a right. An empty `queue` stands for all queues together."""
        self.identity.require(role, queue, payloads=payloads)
        self._refuse_changes(role, queue)

    def shown(self, document: Any) -> Any:
        """Return the part of a document that the user may see."""
        return visible_part(document, self.identity)

    def require_role(self, role: Role, *, payloads: bool = False) -> None:
        """Raise AccessDenied if the user lacks a role or the right to see payloads for the queues that it sees."""
        if not self.identity.has(role):
            raise AccessDenied(self.identity.name, role)
        if payloads and not self.identity.payloads:
            raise AccessDenied(self.identity.name, PAYLOADS)
        self._refuse_changes(role)

    def _refuse_changes(self, role: Role, queue: str = "") -> None:
        if role != "viewer" and self.web.read_only:
            raise AccessDenied(self.identity.name, f"{role} (this server is read-only)", queue)


def context_of(connection: HTTPConnection) -> RequestContext:
    """Return the context of a request of the operations app."""
    return cast("RequestContext", connection.scope[CONTEXT])


def ops_of(connection: HTTPConnection) -> Ops:
    """Return the operations core for the user of a page."""
    return context_of(connection).ops("page")


def identity_of(connection: HTTPConnection) -> Identity:
    """Return the identity of the user of a request."""
    return context_of(connection).identity


async def checked_form(request: Request) -> dict[str, Any]:
    """Return the fields of a form that a page has sent. Raises FormRefused without the token of the page."""
    form = dict(await request.form())
    sent = form.pop(FORM_FIELD, "")
    known = request.cookies.get(FORM_COOKIE, "")
    if not known or not isinstance(sent, str) or not hmac.compare_digest(sent.encode(), known.encode()):
        raise FormRefused
    return form


def new_form_token() -> str:
    """Return a token that ties forms to a browser."""
    return secrets.token_urlsafe(24)
