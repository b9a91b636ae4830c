"""Settings of the web app: who may use it, and its limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from starlette.requests import HTTPConnection

from glidemq_async.ops.access import Identity

Authenticate: TypeAlias = Callable[[HTTPConnection], "Identity | Awaitable[Identity | None] | None"]
"""Returns the identity of a request, or None if the user is not known. It may be asynchronous."""


@dataclass(frozen=True, slots=True)
class ProxyUsers:
    """Users whose name an authenticating proxy sends in a header.

    - `header` has the name. The proxy must remove this header from the requests of its clients.
    - `trusted` are the addresses or networks of the proxy. Requests from other addresses have no user.
    - `known` are the identities of users by name. `others` is the template for all other users: a viewer of every queue
      by default, and None refuses them.

    Raises ValueError for a bad address.
    """

    header: str = "X-Forwarded-User"
    trusted: Sequence[str] = ("127.0.0.1", "::1")
    known: Mapping[str, Identity] = field(default_factory=dict[str, Identity])
    others: Identity | None = field(default_factory=lambda: Identity("proxy"))
    _networks: tuple[IPv4Network | IPv6Network, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "_networks", tuple(ip_network(each, strict=False) for each in self.trusted))

    def trusts(self, address: str) -> bool:
        """Return whether an address is one of the proxy."""
        try:
            found = ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._networks if network.version == found.version)

    def identity(self, user: str) -> Identity | None:
        """Return the identity of a user."""
        if user in self.known:
            return self.known[user]
        if self.others is None:
            return None
        return Identity(user, self.others.role, self.others.queues, self.others.payloads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The ways to authenticate. They are tried in the order of the fields.

    - `authenticate` is a function of the host application.
    - `proxy` reads the header of an authenticating proxy.
    - `tokens` accepts the bearer tokens of `glidemq ui token create`.
    - `open_on_loopback` makes clients of this machine, without credentials, admins who see payloads. Such a request
      must come from a loopback address, for a loopback host, and through no proxy.
    """

    authenticate: Authenticate | None = None
    proxy: ProxyUsers | None = None
    tokens: bool = True
    open_on_loopback: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """The limits of the web app.

    - `requests_per_second` and `burst` apply to each identity and address.
    - `streams` is the maximum number of open event streams of the process.
    - `body_bytes` is the maximum size of a request, `bulk_bytes` of one with many jobs.
    - `search_seconds` is the time limit of a search. Its page then has fewer jobs and a cursor.
    """

    requests_per_second: float = 50.0
    burst: int = 200
    streams: int = 2_000
    body_bytes: int = 1024 * 1024
    bulk_bytes: int = 64 * 1024 * 1024
    search_seconds: float = 2.0
