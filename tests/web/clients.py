"""Clients of the operations app in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from httpx2 import ASGITransport, AsyncClient
from starlette.types import ASGIApp

from glidemq_async.ops.access import Identity, Role
from glidemq_async.storage import Storage
from glidemq_async.web.app import operations_app, running
from glidemq_async.web.settings import WebLimits

LOCAL = "http://localhost"
NO_LIMITS = WebLimits(requests_per_second=100_000, burst=100_000)


@asynccontextmanager
async def serving(storage: Storage, identity: Identity | None = None) -> AsyncGenerator[AsyncClient]:
    """Provide a client of an operations app, as this identity or as a client of this machine."""
    app = operations_app(storage, access=None if identity is None else lambda _: identity, limits=NO_LIMITS)
    async with running(app), client_of(app) as client:
        yield client


@asynccontextmanager
async def client_of(app: ASGIApp, *, address: str = "127.0.0.1", base: str = LOCAL) -> AsyncGenerator[AsyncClient]:
    """Provide a client of an ASGI app, with a network address."""
    async with AsyncClient(transport=ASGITransport(app, client=(address, 1234)), base_url=base) as client:
        yield client


def user(role: Role, *, queues: tuple[str, ...] = ("*",), payloads: bool = False) -> Identity:
    """Return an identity."""
    return Identity("ada", role, queues, payloads)
