"""Webhooks: their addresses, the signature of their requests, and sending one.

The signature follows Standard Webhooks (https://www.standardwebhooks.com), so receivers can verify it with the
libraries of that project.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import SplitResult, urlsplit

from glidemq_async.errors import GlideMQError
from glidemq_async.options.validation import positive_seconds

HOSTS_VARIABLE: Final = "GLIDEMQ_WEBHOOK_HOSTS"
SEND_SECONDS: Final = 10.0
"""Time limit of a request."""
TOLERANCE_SECONDS: Final = 300.0
SECRET_MARK: Final = "whsec_"  # noqa: S105 - the beginning of every secret
_SECRET_BYTES: Final = range(24, 65)
_SCHEMES: Final = ("https", "http")
_LONGEST_URL: Final = 2_000


class WebhookRefused(GlideMQError, ValueError):
    """Raised for the address of a webhook that is not permitted, before anything is sent to it."""


class SignatureInvalid(GlideMQError, ValueError):
    """Raised for a request whose signature does not fit its content, or whose timestamp is too old."""


# --- Addresses


def check_url(url: str, hosts: Sequence[str] | None = None) -> str:
    """Return the address of a webhook. Raises TypeError, ValueError, and WebhookRefused for a host not in `hosts`."""
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a webhook must be a URL, got {url!r}")
    if len(url) > _LONGEST_URL or not url.isprintable() or " " in url:
        raise ValueError(f"a webhook must be a URL of at most {_LONGEST_URL} characters without spaces")
    parts = _parts(url)
    if parts.scheme not in _SCHEMES:
        close = get_close_matches(parts.scheme, _SCHEMES, 1, 0.7)
        hint = f"did you mean {close[0]!r}?" if close else "use https:// or http://"
        raise ValueError(f"a webhook must be an address of HTTP, got the scheme {parts.scheme!r}: {hint}")
    if not parts.hostname:
        raise ValueError("the URL of a webhook names no host; write for example https://hooks.example.com/queues")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL of a webhook must not contain a user or a password; receivers verify the signature")
    check_host(parts.hostname, hosts)
    return url


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for a bad one
    except ValueError as error:
        raise ValueError(f"the URL of a webhook cannot be read: {error}") from None
    return parts


def check_host(host: str, hosts: Sequence[str] | None) -> None:
    """Raise WebhookRefused if there is a list of permitted hosts, and it does not have this one."""
    if hosts is not None and not any(fnmatchcase(host.lower(), pattern.lower()) for pattern in hosts):
        raise WebhookRefused(
            f"webhooks to {host} are not permitted here; the permitted hosts are {', '.join(hosts) or 'none'} "
            f"(${HOSTS_VARIABLE})"
        )


def permitted_hosts(given: Sequence[str] | None = None) -> tuple[str, ...] | None:
    """Return the patterns of the hosts that may receive webhooks: the given ones, or the ones in the environment.

    None permits all hosts. Raises TypeError for a single text.
    """
    if isinstance(given, str):
        raise TypeError(f"webhook_hosts must be a list of patterns, got the text {given!r}")
    if given is not None:
        return tuple(given)
    text = os.environ.get(HOSTS_VARIABLE)
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def masked(url: str) -> str:
    """Return an address without its path and query, because these often contain a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" + ("/…" if parts.path.strip("/") or parts.query else "")


async def _refuse_link_local(host: str) -> None:
    """Raise WebhookRefused for an address of the local link, where clouds offer credentials to every process."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return  # a proxy may know the name; otherwise the request fails
    for *_, address in found:
        if ipaddress.ip_address(str(address[0]).partition("%")[0]).is_link_local:
            raise WebhookRefused(f"{host} is an address of the local link; webhooks are not sent there")


# --- Signatures


def new_secret() -> str:
    """Return a new secret for signatures."""
    return SECRET_MARK + base64.b64encode(secrets.token_bytes(32)).decode()


def check_secret(secret: str) -> str:
    """Return a secret. Raises ValueError unless it is `whsec_` and 24 to 64 bytes in base64."""
    _key_of(secret)
    return secret


def _key_of(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_MARK), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_MARK) or len(key) not in _SECRET_BYTES:
        raise ValueError(
            f"a secret of a webhook must be {SECRET_MARK} and 24 to 64 bytes in base64; leave it out to get a new one"
        )
    return key


def signed_headers(secret: str, message: str, body: bytes) -> dict[str, str]:
    """Return the headers of a request with this body, signed now."""
    timestamp = str(int(time.time()))
    return {
        "content-type": "application/json",
        "webhook-id": message,
        "webhook-timestamp": timestamp,
        "webhook-signature": _signature(secret, message, timestamp, body),
    }


def _signature(secret: str, message: str, timestamp: str, body: bytes) -> str:
    content = b".".join((message.encode(), timestamp.encode(), body))
    return "v1," + base64.b64encode(hmac.new(_key_of(secret), content, hashlib.sha256).digest()).decode()


def verify_webhook(
    secret: str, headers: Mapping[str, str], body: bytes, *, tolerance: float = TOLERANCE_SECONDS
) -> str:
    """Check the signature of a received request, and return the id of its message.

    A repeated request has the same id. `headers` and `body` belong to the request as it was received, and `tolerance`
    is the largest age in seconds. Raises SignatureInvalid.
    """
    seconds = positive_seconds("tolerance", tolerance)
    given = {name.lower(): value for name, value in headers.items()}
    message, timestamp = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
    if not (message and timestamp.isascii() and timestamp.isdigit()):
        raise SignatureInvalid("the request has no signature: webhook-id or webhook-timestamp is missing")
    expected = _signature(secret, message, timestamp, body).encode()
    sent = given.get("webhook-signature", "").split()
    if not any(hmac.compare_digest(expected, each.encode("utf-8", "replace")) for each in sent):
        raise SignatureInvalid("the signature does not fit the request: it has another secret, or it was changed")
    age = time.time() - int(timestamp)
    if abs(age) > seconds:
        raise SignatureInvalid(f"the request was signed {age:.0f} seconds ago; it may be a repeated one")
    return message


# --- Sending


@dataclass(frozen=True, slots=True)
class WebhookReply:
    """The reply of a webhook. `error` is "" for a reply with a status from 200 to 299."""

    webhook: str
    status: int | None
    error: str
    seconds: float


async def send(url: str, secret: str, message: str, body: bytes, hosts: Sequence[str] | None) -> WebhookReply:
    """Send a signed request, and return the reply. Redirects are not followed, and the content is not read.

    Raises WebhookRefused.
    """
    import httpx2

    check_url(url, hosts)
    await _refuse_link_local(_parts(url).hostname or "")
    began = time.monotonic()
    status: int | None = None
    try:
        async with (
            asyncio.timeout(SEND_SECONDS),
            httpx2.AsyncClient(follow_redirects=False, timeout=SEND_SECONDS) as client,
            client.stream("POST", url, content=body, headers=signed_headers(secret, message, body)) as reply,
        ):
            status = reply.status_code
            error = "" if reply.is_success else f"the receiver replied {status}"
    except TimeoutError:
        error = f"no reply within {SEND_SECONDS:g} seconds"
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as failure:
        # The text of the failure may contain the address, which is a secret.
        error = f"the request failed ({type(failure).__name__})"
    return WebhookReply(masked(url), status, error, round(time.monotonic() - began, 3))
