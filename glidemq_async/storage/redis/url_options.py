"""The options of redis-py's URLs."""

# redis-py's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

from redis.asyncio.connection import URL_QUERY_ARGUMENT_PARSERS, SSLConnection, parse_url

from glidemq_async.errors import StorageUnavailable
from glidemq_async.storage.redis.connections import Endpoint, unopened_connection

# redis-py passes every option on as a keyword argument. These are the ones whose values are texts.
_TEXTS: Final = frozenset({"client_name", "decode_responses", "encoding", "encoding_errors", "lib_name", "lib_version"})
# These belong to the URL forms of this package, which have read them already.
_OWN: Final = frozenset({"db", "timeout"})


def connection_options(endpoint: Endpoint, given: Mapping[str, str], own: Iterable[str]) -> Endpoint:
    """Return the endpoint with the options of a URL, as redis-py reads them.

    Raises ValueError for an unknown option, which names the known ones and `own`, and for a wrong value.
    """
    known = known_options(endpoint)
    unknown = sorted(given.keys() - known)
    if unknown:
        kind = "needs TLS or is unknown" if unknown[0].startswith("ssl_") and not endpoint.tls else "is unknown"
        names = ", ".join(sorted({*known, *own}))
        raise ValueError(f"the option {unknown[0]!r} {kind} here; the known options are: {names}")
    kwargs: dict[str, Any] = {**parse_url(f"redis://?{urlencode(given)}")}
    found = replace(endpoint, options=kwargs)
    try:
        # Creates a connection of redis-py and does not open it. redis-py checks some options only there, and a wrong
        # URL should be refused when it is read.
        unopened_connection(found)
    except StorageUnavailable as error:
        raise ValueError(str(error.__cause__)) from None
    return found


def known_options(endpoint: Endpoint) -> frozenset[str]:
    """Return the names of the options that a URL to this endpoint may have."""
    socket = {name for name in URL_QUERY_ARGUMENT_PARSERS if not name.startswith("ssl_")}
    if endpoint.path is not None:
        socket.discard("socket_keepalive")
    tls = set(inspect.signature(SSLConnection.__init__).parameters) if endpoint.tls else set()
    return frozenset(socket | _TEXTS | {name for name in tls if name.startswith("ssl_")}) - _OWN
