"""Bearer tokens: secrets with the rights of an identity. The store holds only their digests."""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

import msgpack

from glidemq_async.durations import from_ms, to_ms
from glidemq_async.errors import GlideMQError
from glidemq_async.ops.access import Identity, Role
from glidemq_async.ops.core import Ops
from glidemq_async.stored.names import check_id

MARK: Final = "glidemq_"
"""The beginning of every token, by which scanners of leaked secrets recognize it."""
DEFAULT_EXPIRY: Final = timedelta(days=90)
SHOWN_DIGITS: Final = 12
"""Digits of the digest that name a token."""
KNOWN_SECONDS: Final = 5.0
"""Time for which this process uses a token that it has read. A revoked token works for this time at most."""
MOST_KNOWN: Final = 1_000


class TooManyTokens(GlideMQError):
    """Raised when 500 tokens exist that have not expired."""

    def __init__(self) -> None:
        super().__init__("there are 500 access tokens, and more are not stored; revoke some of them")


class TokenNotFound(GlideMQError, LookupError):
    """Raised when no access token has the id."""


@dataclass(frozen=True, slots=True)
class Token:
    """An access token without its secret. `id` is the beginning of its digest. `expires_at` is None for never."""

    id: str
    identity: Identity
    created_at: datetime
    expires_at: datetime | None
    created_by: str


class Tokens:
    """The access tokens of a prefix."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._known: dict[str, tuple[float, Identity | None]] = {}

    async def create(
        self,
        name: str,
        role: Role = "viewer",
        *,
        queues: tuple[str, ...] = ("*",),
        payloads: bool = False,
        expires: float | timedelta | None = DEFAULT_EXPIRY,
        reason: str = "",
    ) -> str:
        """Store a token, and return its secret, which cannot be read again.

        `name` names its user in audit lines. `expires` is in seconds (default: 90 days); None means never. Raises
        TypeError or ValueError for bad values, TooManyTokens, and StorageUnavailable.
        """
        Identity(check_id("the name of a token", name), role, queues, payloads)
        secret = MARK + secrets.token_urlsafe(32)
        length = 0 if expires is None else to_ms("expires", expires, allow_zero=False)
        async with self._ops.changing(
            "create token", target=name, reason=reason, role=role, queues=queues, payloads=payloads
        ):
            now = await self._ops.system.reading.now()
            record = {"n": name, "r": role, "q": queues, "p": payloads, "c": now, "e": length and now + length}
            packed = msgpack.packb({**record, "b": self._ops.actor.name})
            if not await self._ops.system.tokens.put(_digest(secret), length and now + length, packed):
                raise TooManyTokens
        return secret

    async def list(self) -> list[Token]:
        """Return all tokens, the oldest first, also the ones that have expired lately."""
        rows = await self._ops.system.tokens.list()
        return sorted((_token(digest, packed) for digest, packed in rows), key=lambda token: token.created_at)

    async def revoke(self, token_id: str, *, reason: str = "") -> Token:
        """Remove the token with this id, and return it. Processes accept it for up to 5 seconds more.

        Raises TokenNotFound, also if the beginning of an id fits several tokens.
        """
        digests = [digest for digest, _ in await self._ops.system.tokens.list() if digest.startswith(token_id)]
        if len(digests) != 1 or len(token_id) < SHOWN_DIGITS:
            raise TokenNotFound(f"there is no token {token_id!r}; `glidemq ui token list` shows the ids")
        async with self._ops.changing("revoke token", target=token_id, reason=reason):
            found = next(token for token in await self.list() if digests[0].startswith(token.id))
            await self._ops.system.tokens.remove(digests[0])
        self._known.clear()
        return found

    async def identity(self, secret: str) -> Identity | None:
        """Return the identity of the holder of a token, None for an unknown or expired one."""
        digest, now = _digest(secret), time.monotonic()
        known = self._known.get(digest)
        if known is not None and known[0] > now:
            return known[1]
        packed = await self._ops.system.tokens.get(digest)
        identity = _token(digest, packed).identity if packed else None
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[digest] = now + KNOWN_SECONDS, identity
        return identity


def _digest(secret: str) -> str:
    # The secret has 256 random bits, so a fast digest without a salt is as strong as a slow one.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _token(digest: str, packed: bytes) -> Token:
    row = cast("dict[str, Any]", msgpack.unpackb(packed))
    identity = Identity(row["n"], row["r"], tuple(row["q"]), row["p"])
    expires = from_ms(row["e"]) if row["e"] else None
    return Token(digest[:SHOWN_DIGITS], identity, from_ms(row["c"]), expires, row["b"])
