"""Typed calls of the functions for access tokens: `tokens.lua`."""

from __future__ import annotations

from typing import cast

from glidemq_async.functions.calling import Calls, text


class TokenCalls(Calls):
    """Calls of the functions in `tokens.lua`, with the base key of the queue `system/ops`."""

    __slots__ = ()

    async def put(self, digest: str, expires_ms: int, record: bytes) -> bool:
        """Store a token. `expires_ms` is an instant, 0 for never. Return False if there are too many tokens."""
        return await self._caller.once("putToken", [digest, expires_ms, record]) == 1

    async def get(self, digest: str) -> bytes:
        """Return the record of a token, b"" for an unknown or expired one."""
        return cast("bytes", await self._caller.read("getToken", [digest]))

    async def list(self) -> list[tuple[str, bytes]]:
        """Return the digest and the record of each token."""
        found: dict[str, bytes] = {}
        cursor = "0"
        while True:
            # A step may repeat tokens of an earlier one.
            position, rows = cast("tuple[bytes, list[list[bytes]]]", await self._caller.read("listTokens", [cursor]))
            found |= {text(digest): record for digest, record in rows}
            cursor = text(position)
            if cursor == "0":
                return [*found.items()]

    async def remove(self, digest: str) -> bool:
        """Remove a token. Return whether it existed."""
        return await self._caller.once("removeToken", [digest]) == 1
