"""Encryption and signing: without the key, payloads cannot be read or forged, or moved to another job or queue.

The authenticated data are the codec, key id, queue, kind, job name and, if known, job id.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple

from glidemq_async.errors import CodecError
from glidemq_async.payloads.codecs.chain import PayloadContext
from glidemq_async.payloads.codecs.keyring import Keyring

__all__ = ["Encryption", "Signing"]

_MAC_BYTES: Final = 32
_SALT_BYTES: Final = 12
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_ID_BOUND: Final = 1
"""Flag: the job's id was known and is part of the authenticated data."""


class Signing:
    """Signs payloads with HMAC-SHA256: everybody can read them, but writing requires a key.

    `keys` are 32 random bytes each, by ids that you choose (see `generate_key`). The first key signs, and every key
    verifies. A payload is refused if it is unsigned (unless `allow_unsigned`), if it was modified, or if it was copied
    from another queue, job name or kind of payload. If the job's id was known when it was written, it is also refused
    for any other job.

    Raises TypeError or ValueError for bad keys.
    """

    tag = b"S"

    def __init__(self, keys: Mapping[str, bytes], *, allow_unsigned: bool = False) -> None:
        self._keys = Keyring(keys)
        self.required = not allow_unsigned

    def __repr__(self) -> str:
        return f"Signing({self._keys!r})"

    def encode(self, data: bytes, context: PayloadContext, /) -> bytes:
        """Return the payload with its signature in front."""
        header = _header(self._keys.current, context)
        return header + self._mac(self._keys.current, header, context, data) + data

    def decode(self, content: bytes, context: PayloadContext, /) -> bytes:
        """Return the payload. Raises CodecError if the signature is wrong or the key is unknown."""
        opened = _open(content, _MAC_BYTES)
        data = opened.rest[_MAC_BYTES:]
        expected = self._mac(opened.key_id, opened.header, context, data)
        # Not `!=`, whose duration shows an attacker how many of the first bytes were right.
        if not hmac.compare_digest(expected, opened.rest[:_MAC_BYTES]):
            raise CodecError(_refusal("signature", opened, context))
        return data

    def _mac(self, key_id: bytes, header: bytes, context: PayloadContext, data: bytes) -> bytes:
        sealed = _associated(self.tag, header, context)
        return hmac.digest(self._keys[key_id], len(sealed).to_bytes(4) + sealed + data, hashlib.sha256)


class Encryption:
    """Encrypts payloads with AES-256-GCM, each with a separate key that is derived from one of `keys`.

    `keys` are 32 random bytes each, by ids that you choose (see `generate_key`). The first key encrypts, and every key
    decrypts. A payload is refused if it is not encrypted (unless `allow_plain`), if it was modified, or if it was
    copied from another queue, job name or kind of payload. If the job's id was known when it was written, it is also
    refused for any other job. Names, ids, ordering keys, headers and logs of jobs, error texts, and payload sizes stay
    readable.

    Needs the extra `crypto`. Raises TypeError or ValueError for bad keys, ImportError without the extra.
    """

    tag = b"E"

    def __init__(self, keys: Mapping[str, bytes], *, allow_plain: bool = False) -> None:
        if importlib.util.find_spec("cryptography") is None:
            raise ImportError("Encryption needs the package cryptography: pip install 'glidemq-async[crypto]'")
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._aead = AESGCM
        self._invalid = InvalidTag
        self._keys = Keyring(keys)
        self.required = not allow_plain

    def __repr__(self) -> str:
        return f"Encryption({self._keys!r})"

    def encode(self, data: bytes, context: PayloadContext, /) -> bytes:
        """Return the encrypted payload."""
        header = _header(self._keys.current, context)
        random = secrets.token_bytes(_SALT_BYTES + _NONCE_BYTES)
        cipher = self._aead(self._derived(self._keys.current, random))
        return header + random + cipher.encrypt(random[_SALT_BYTES:], data, _associated(self.tag, header, context))

    def decode(self, content: bytes, context: PayloadContext, /) -> bytes:
        """Return the payload. Raises CodecError if it was modified or moved, or if the key is unknown."""
        opened = _open(content, _SALT_BYTES + _NONCE_BYTES + _TAG_BYTES)
        random, sealed = opened.rest[: _SALT_BYTES + _NONCE_BYTES], opened.rest[_SALT_BYTES + _NONCE_BYTES :]
        cipher = self._aead(self._derived(opened.key_id, random))
        try:
            return cipher.decrypt(random[_SALT_BYTES:], sealed, _associated(self.tag, opened.header, context))
        except self._invalid:
            raise CodecError(_refusal("encryption", opened, context)) from None

    def _derived(self, key_id: bytes, random: bytes) -> bytes:
        # One key allows 2**32 messages with random nonces, which a queue reaches in days. With a key derived for each
        # message from half of 192 random bits, a repetition stays improbable for any number of jobs.
        return hmac.digest(self._keys[key_id], b"glidemq AES-256-GCM" + random[:_SALT_BYTES], hashlib.sha256)


class _Opened(NamedTuple):
    header: bytes
    key_id: bytes
    rest: bytes


def _header(key_id: bytes, context: PayloadContext) -> bytes:
    return bytes((_ID_BOUND if context.id else 0, len(key_id))) + key_id


def _open(content: bytes, least: int) -> _Opened:
    """Split off the header. `least` is the minimum length of the remaining bytes."""
    end = 2 + content[1] if len(content) > 1 else 2
    if len(content) < end + least:
        raise CodecError("it is truncated")
    return _Opened(content[:end], content[2:end], content[end:])


def _associated(tag: bytes, header: bytes, context: PayloadContext) -> bytes:
    bound = context.id if header[0] & _ID_BOUND else ""
    # Each field has its length in front. Without the lengths, the name "ab" with the id "c" and the name "a" with the
    # id "bc" would be the same authenticated data, and a payload could be moved between these jobs.
    fields = (tag, header, context.queue.encode(), context.kind.encode(), _text(context.name), _text(bound))
    return b"glidemq 1" + b"".join(len(field).to_bytes(4) + field for field in fields)


def _text(text: str) -> bytes:
    # Damaged data may not be valid UTF-8. Such a name matches no authenticated data.
    return text.encode("utf-8", "surrogatepass")


def _refusal(what: str, opened: _Opened, context: PayloadContext) -> str:
    key_id = opened.key_id.decode("ascii", "backslashreplace")
    whose = f"job {context.id}" if opened.header[0] & _ID_BOUND else "a job"
    return (
        f"its {what} does not fit: the payload was changed, or is not the {context.kind} of {whose} named "
        f"{context.name!r} of {context.queue}, or was written with a different key {key_id!r}"
    )
