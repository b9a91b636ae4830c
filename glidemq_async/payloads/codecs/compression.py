"""Compression of payloads above a threshold, and decompression with a size limit."""

from __future__ import annotations

import importlib.util
import threading
import zlib
from typing import TYPE_CHECKING, Final, Literal, get_args

from glidemq_async.errors import CodecError, PayloadTooLarge
from glidemq_async.options.validation import whole_number
from glidemq_async.payloads.codecs.chain import PayloadContext

if TYPE_CHECKING:
    import zstandard

__all__ = ["Compression"]

Algorithm = Literal["gzip", "zstd"]

_MARKS: Final = {"gzip": b"g", "zstd": b"z"}
_LEVELS: Final = {"gzip": (1, 9, 6), "zstd": (1, 19, 3)}
"""The lowest level, the highest level, and the default."""
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_ZSTD_WINDOW: Final = 2**23
"""The maximum window size in bytes that a frame may request: the window of level 19."""
_NO_ZSTD: Final = "zstd needs the package zstandard: pip install 'glidemq-async[zstd]'"


class Compression:
    """Compresses payloads of at least `threshold` bytes with "gzip" or "zstd" if that makes them smaller.

    Each algorithm can decode the other one and uncompressed payloads, so processes can change one at a time. `level`
    trades time for size: 1 to 9 for gzip (default 6), 1 to 19 for zstd (default 3). `max_size` limits the decompressed
    size in bytes: larger payloads are refused with PayloadTooLarge before sending, and with CodecError on reading,
    before they fill the memory. In a chain, place it before Encryption, because encrypted data cannot be compressed.

    "zstd" needs the extra `zstd`. Raises ValueError or TypeError for bad arguments, ImportError without the extra.
    """

    tag = b"C"
    required = False

    def __init__(
        self,
        algorithm: Algorithm = "gzip",
        *,
        threshold: int = 1024,
        level: int | None = None,
        max_size: int = 64 * 1024 * 1024,
    ) -> None:
        _check_algorithm(algorithm)
        self._level = _level_of(algorithm, level)
        self._algorithm = algorithm
        self._threshold = whole_number("threshold", threshold, least=0)
        self._max_size = whole_number("max_size", max_size, least=1)
        self._zstd = _Zstd(self._level) if algorithm == "zstd" else None

    def __repr__(self) -> str:
        return f"Compression({self._algorithm!r}, threshold={self._threshold}, level={self._level})"

    def encode(self, data: bytes, context: PayloadContext, /) -> bytes | None:
        """Return the compressed payload, or None if compression does not save space. Raises PayloadTooLarge."""
        if len(data) < self._threshold:
            return None
        if len(data) > self._max_size:
            raise PayloadTooLarge(f"{context.kind} before compression", len(data), self._max_size, "max_size")
        zstd = self._zstd
        packed = zstd.compress(data) if zstd is not None else zlib.compress(data, self._level, _GZIP_WINDOW)
        # The header of the frame takes three bytes.
        return _MARKS[self._algorithm] + packed if len(packed) + 3 < len(data) else None

    def decode(self, content: bytes, context: PayloadContext, /) -> bytes:
        """Return the payload. Raises CodecError for one that is malformed or larger than `max_size`."""
        del context
        mark, packed = content[:1], content[1:]
        if mark == _MARKS["gzip"]:
            return self._gunzip(packed)
        if mark == _MARKS["zstd"]:
            return self._unzstd(packed)
        raise CodecError(f"its compression {mark!r} is unknown to this version of the library")

    def _gunzip(self, packed: bytes) -> bytes:
        reader = zlib.decompressobj(_GZIP_WINDOW)
        try:
            # One byte more than allowed, and never the whole: a few kilobytes can expand to gigabytes. The extra byte
            # shows that the limit is exceeded.
            data = reader.decompress(packed, self._max_size + 1)
        except zlib.error as error:
            raise CodecError(f"its gzip data is malformed ({error})") from None
        self._check_size(len(data))
        if not reader.eof or reader.unused_data:
            raise CodecError("its gzip data is truncated or continues after its end")
        return data

    def _unzstd(self, packed: bytes) -> bytes:
        try:
            import zstandard
        except ImportError:
            raise CodecError(f"it is compressed with zstd: {_NO_ZSTD}") from None
        try:
            size = zstandard.get_frame_parameters(packed).content_size
            # The size must come from the header, not from the data. The compressor of this library always writes it.
            if size == zstandard.CONTENTSIZE_UNKNOWN:
                raise CodecError("the header of its zstd data does not contain the size")
            self._check_size(size)
            # The size in the header is verified only at the end of the data, so never decompress more than that.
            reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).stream_reader(packed)
            data = reader.read(size + 1)
        except zstandard.ZstdError as error:
            raise CodecError(f"its zstd data is malformed ({error})") from None
        if len(data) != size:
            raise CodecError("its zstd data is truncated, or larger than its header says")
        return data

    def _check_size(self, size: int) -> None:
        if size > self._max_size:
            raise CodecError(f"it is larger than max_size={self._max_size} bytes when decompressed")


class _Zstd(threading.local):
    """One compressor per thread: it is not thread-safe, and creating one costs more than a small payload."""

    def __init__(self, level: int) -> None:
        self._level = level
        self._made: zstandard.ZstdCompressor | None = None

    def compress(self, data: bytes) -> bytes:
        if self._made is None:
            import zstandard

            self._made = zstandard.ZstdCompressor(level=self._level)
        return self._made.compress(data)


def _check_algorithm(algorithm: str) -> None:
    if algorithm not in get_args(Algorithm):
        raise ValueError(f'algorithm must be "gzip" or "zstd", got {algorithm!r}')
    if algorithm == "zstd" and importlib.util.find_spec("zstandard") is None:
        raise ImportError(_NO_ZSTD)


def _level_of(algorithm: Algorithm, level: int | None) -> int:
    lowest, highest, usual = _LEVELS[algorithm]
    found = usual if level is None else whole_number("level", level, least=lowest)
    if found > highest:
        raise ValueError(f"level must be from {lowest} to {highest} for {algorithm}, got {level!r}")
    return found
