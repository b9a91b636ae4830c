"""Signed links with which people answer a suspended job, without an account."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, cast

from glidemq_async.durations import to_ms
from glidemq_async.errors import GlideMQError
from glidemq_async.stored.names import QueueKeys, check_id

__all__ = ["LinkRefused", "SignalLink", "SignalLinks"]

DEFAULT_EXPIRY: Final = timedelta(days=7)
_SHORTEST_SECRET: Final = 32
"""Bytes of a secret, as many as its digest has."""
_LONGEST_TOKEN: Final = 8_192
_DIGEST_BYTES: Final = 32
_PURPOSE: Final = b"glidemq signal link 1\0"
"""Part of what is signed, so that a signature for another purpose with the same secret is refused."""


class LinkRefused(GlideMQError):
    """Raised for a link that this application has not signed, or that has expired. `expired` tells these apart."""

    def __init__(self, reason: str, *, expired: bool = False) -> None:
        super().__init__(reason)
        self.expired = expired


@dataclass(frozen=True, slots=True)
class SignalLink:
    """A signal that a link sends: `queue` and `job_id` name the job, `name` and `data` are the signal.

    `question` is what the link answers; a job accepts one answer to it. `expires` is in seconds since 1970.
    """

    queue: str
    job_id: str
    name: str
    data: Any
    question: str
    expires: int


class SignalLinks:
    """Makes and verifies signed links. Everybody who has a link can read its content. A changed link is refused.

    - `secret`: at least 32 random bytes that only the application knows. Of several secrets the first one signs, and
      all of them verify, so that a secret can be replaced.
    - `url`: the address at which `signal_link_app` is mounted.

    Raises TypeError or ValueError for bad arguments.
    """

    def __init__(self, secret: bytes | Sequence[bytes], url: str) -> None:
        self._secrets = [secret] if isinstance(secret, bytes) else list(secret)
        if not self._secrets or not all(isinstance(one, bytes) for one in self._secrets):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("secret must be bytes, or several secrets; make one with secrets.token_bytes(32)")
        if min(map(len, self._secrets)) < _SHORTEST_SECRET:
            raise ValueError(
                f"a secret must have at least {_SHORTEST_SECRET} bytes; make it with secrets.token_bytes(32)"
            )
        self._url = url.rstrip("/")

    def link(
        self,
        queue: str,
        job_id: str,
        name: str,
        data: object = None,
        *,
        expires: float | timedelta = DEFAULT_EXPIRY,
        question: str | None = None,
    ) -> str:
        """Return a link that sends a signal to a job. `data` is a JSON value.

        The link can be used for `expires` seconds, and once. A job accepts one answer to a `question`, so links with
        the same question, such as "yes" and "no", exclude each other. Without a question, links do not exclude each
        other.

        Raises TypeError or ValueError for a bad argument.
        """
        QueueKeys("glide", queue)
        check_id("job_id", job_id)
        check_id("name", name)
        asked = secrets.token_urlsafe(12) if question is None else check_id("question", question)
        until = int(time.time() + to_ms("expires", expires, allow_zero=False) / 1000)
        body = json.dumps([queue, job_id, name, data, asked, until], separators=(",", ":"), allow_nan=False).encode()
        token = _encoded(body + self._digest(self._secrets[0], body))
        if len(token) > _LONGEST_TOKEN:
            raise ValueError(f"the link would have {len(token)} characters, at most {_LONGEST_TOKEN} are allowed")
        return f"{self._url}/{token}"

    def read(self, token: str) -> SignalLink:
        """Return the signal of a link from the last part of its path. Raises LinkRefused."""
        refused = LinkRefused("this link is not valid; ask for a new one")
        if len(token) > _LONGEST_TOKEN:
            raise refused
        try:
            signed = base64.urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        except ValueError:
            raise refused from None
        body, digest = signed[:-_DIGEST_BYTES], signed[-_DIGEST_BYTES:]
        # Every secret is compared, in constant time. A second spelling of the same bytes is refused too.
        matches = [hmac.compare_digest(self._digest(secret, body), digest) for secret in self._secrets]
        if not any(matches) or _encoded(signed) != token:
            raise refused
        link = SignalLink(*cast("list[Any]", json.loads(body)))
        if link.expires < time.time():
            raise LinkRefused("this link has expired; ask for a new one", expired=True)
        return link

    @staticmethod
    def _digest(secret: bytes, body: bytes) -> bytes:
        return hmac.new(secret, _PURPOSE + body, hashlib.sha256).digest()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
