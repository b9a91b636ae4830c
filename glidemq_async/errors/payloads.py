"""Exceptions of the conversion of values to bytes and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidemq_async.errors.base import GlideMQError

if TYPE_CHECKING:
    from collections.abc import Callable


class PayloadTooLarge(GlideMQError, ValueError):
    """Raised before anything is sent when an encoded value exceeds its limit; `size` and `limit` are in bytes.

    `setting` names the setting that has the limit. It is empty for a limit that is fixed.
    """

    def __init__(self, what: str, size: int, limit: int, setting: str = "") -> None:
        raised = f", or raise {setting}" if setting else ""
        super().__init__(
            f"{what} is {size} bytes when encoded, but the limit is {limit}; "
            f"store the content elsewhere and send a reference to it{raised}"
        )
        self.what = what
        self.size = size
        self.limit = limit
        self.setting = setting

    def __reduce__(self) -> tuple[Callable[..., PayloadTooLarge], tuple[object, ...]]:
        return type(self), (self.what, self.size, self.limit, self.setting)


class SerializationError(GlideMQError, TypeError, ValueError):
    """Raised when a value cannot be encoded or decoded. `path` locates its faulty part, such as `$.items[3].when`."""

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., SerializationError], tuple[object, ...]]:
        return type(self), (str(self), self.path)


class CodecError(SerializationError):
    """Raised when a codec refuses a payload: it was modified, its key is unknown, or it exceeds the size limit.

    The message never contains keys or payloads.
    """
