"""Secret keys by id: the first key writes, every key reads. No method or message shows a key."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final, NoReturn

from glidemq_async.errors import CodecError

__all__ = ["KEY_BYTES", "Keyring", "generate_key"]

KEY_BYTES: Final = 32
_MAX_ID_BYTES: Final = 64


def generate_key() -> bytes:
    """Return a new secret key of 32 random bytes, for Encryption or Signing."""
    return secrets.token_bytes(KEY_BYTES)


class Keyring:
    """Keys by id, in order of preference. Raises TypeError or ValueError for bad ids and keys."""

    __slots__ = ("_keys", "current")

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if not isinstance(keys, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"keys must be a mapping of key ids to keys, got a {type(keys).__name__}")
        if not keys:
            raise ValueError("keys must contain at least one key, got none; the first key writes, and all of them read")
        self._keys = {_checked_id(key_id): _checked_key(key_id, key) for key_id, key in keys.items()}
        #: The id of the key for writing.
        self.current = next(iter(self._keys))

    def __repr__(self) -> str:
        return f"keys {', '.join(repr(key_id.decode()) for key_id in self._keys)}"

    def __reduce__(self) -> NoReturn:
        # A codec may reach another process inside a pickled object, for example a closure of Spark, and pickles are
        # written to disks and logs.
        raise TypeError("keys cannot be pickled; create the codec in the process that uses it, from a secret store")

    def __getitem__(self, key_id: bytes) -> bytes:
        """Return the key with this id. Raises CodecError."""
        key = self._keys.get(key_id)
        if key is None:
            shown = key_id.decode("ascii", "backslashreplace")
            raise CodecError(f"it needs the key {shown!r}, which is not among the {self!r}")
        return key


def _checked_id(key_id: object) -> bytes:
    if not isinstance(key_id, str):
        raise TypeError(f"a key id must be a str, got a {type(key_id).__name__}")
    if not key_id.isascii() or not key_id.isprintable() or not 1 <= len(key_id) <= _MAX_ID_BYTES:
        raise ValueError(f"a key id must be 1 to {_MAX_ID_BYTES} printable ASCII characters, got {len(key_id)}")
    return key_id.encode()


def _checked_key(key_id: str, key: object) -> bytes:
    if not isinstance(key, (bytes, bytearray)):
        raise TypeError(f"key {key_id!r} must be bytes, got a {type(key).__name__}")
    if len(key) != KEY_BYTES:
        raise ValueError(f"key {key_id!r} must be {KEY_BYTES} random bytes, got {len(key)}: see generate_key()")
    return bytes(key)
