"""Payload codecs: the round trip, the errors of refused payloads, and the secrecy of keys."""

from __future__ import annotations

import gzip
import pickle
import tracemalloc
import zlib
from collections.abc import Callable, Mapping, Sequence

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from glidemq_async import (
    Codec,
    CodecError,
    Compression,
    Encryption,
    PayloadContext,
    PayloadTooLarge,
    SerializationError,
    Signing,
    generate_key,
)
from glidemq_async.client.payload_coder import Payloads
from glidemq_async.payloads.codecs.chain import CodecChain, codecs_of

OLD, NEW, OTHER = (bytes([number]) * 32 for number in (1, 2, 3))
HERE = PayloadContext("glide:{q}", "data", "mail", "7")
UNKNOWN_ID = HERE._replace(id="")
ELSEWHERE = [
    HERE._replace(queue="glide:{r}"),
    HERE._replace(queue="other:{q}"),
    HERE._replace(kind="result"),
    HERE._replace(name="male"),
    HERE._replace(id="8"),
]
TEXT = b"the quick brown fox " * 500


def chain(*codecs: Codec) -> CodecChain:
    return CodecChain(codecs)


def sealing(kind: str, keys: Mapping[str, bytes] | None = None, *, optional: bool = False) -> Codec:
    keys = keys or {"new": NEW}
    return Signing(keys, allow_unsigned=optional) if kind == "signing" else Encryption(keys, allow_plain=optional)


both_seals = pytest.mark.parametrize("kind", ["signing", "encryption"])
both_compressions = pytest.mark.parametrize("codec", [Compression("gzip"), Compression("zstd")], ids=["gzip", "zstd"])

CHAINS: list[Sequence[Codec]] = [
    [Compression("gzip", threshold=0)],
    [Compression("zstd", threshold=0)],
    [Signing({"a": NEW})],
    [Encryption({"a": NEW})],
    [Compression(threshold=10), Encryption({"a": NEW}), Signing({"b": OLD})],
]


@pytest.mark.parametrize("codecs", CHAINS, ids=lambda codecs: "+".join(type(codec).__name__ for codec in codecs))
@settings(max_examples=50)
@given(data=st.binary() | st.binary(max_size=5).map(lambda part: part * 1000) | st.just(b"\xc1S\xc1"))
def test_payloads_survive_a_round_trip(codecs: Sequence[Codec], data: bytes) -> None:
    made = CodecChain(codecs)
    assert made.decode(made.encode(data, HERE), HERE) == data
    assert made.decode(made.encode(data, UNKNOWN_ID), HERE) == data


@both_compressions
def test_compression_works_above_its_threshold_and_where_it_saves_space(codec: Compression) -> None:
    made = chain(codec)
    assert len(made.encode(TEXT, HERE)) < len(TEXT) // 10
    assert made.encode(TEXT[:1023], HERE) == TEXT[:1023]
    # A payload that begins like an envelope is wrapped into one.
    noise = b"n" + b"".join(generate_key() for _ in range(64))
    assert made.encode(noise, HERE) == noise


def test_each_compression_reads_the_other_and_uncompressed_payloads() -> None:
    with_gzip, with_zstd = chain(Compression("gzip")), chain(Compression("zstd", level=19))
    for writer in (with_gzip, with_zstd):
        for reader in (with_gzip, with_zstd):
            assert reader.decode(writer.encode(TEXT, HERE), HERE) == TEXT
    assert with_gzip.decode(TEXT, HERE) == TEXT


def bomb_gzip(size: int) -> bytes:
    return b"\xc1Cg" + gzip.compress(bytes(size))


def bomb_zstd(size: int) -> bytes:
    return b"\xc1Cz" + zstandard.ZstdCompressor().compress(bytes(size))


def lying_zstd(size: int) -> bytes:
    """A frame that announces 100 bytes and contains many more."""
    honest = zstandard.ZstdCompressor().compress(bytes(size))
    small = zstandard.ZstdCompressor().compress(bytes(300))
    # The header of the small one, and the blocks of the large one.
    return b"\xc1Cz" + small[: zstandard.frame_header_size(small)] + honest[zstandard.frame_header_size(honest) :]


@pytest.mark.parametrize("bomb", [bomb_gzip, bomb_zstd, lying_zstd])
def test_compression_bombs_are_refused_before_they_are_in_memory(bomb: Callable[[int], bytes]) -> None:
    data = bomb(200_000_000)
    assert len(data) < 1_000_000
    reader = chain(Compression(max_size=100_000))
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match=r"larger than|larger than it says|malformed"):
            reader.decode(data, HERE)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_payload_that_could_not_be_read_again_is_not_sent() -> None:
    with pytest.raises(PayloadTooLarge, match=r"data before compression is 10000 bytes .* the limit is 9999"):
        chain(Compression(max_size=9_999)).encode(TEXT, HERE)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"g",
        b"gxyz",
        b"z",
        b"zxyz",
        b"x123",
        b"g" + gzip.compress(TEXT, mtime=0)[:-1],
        b"g" + gzip.compress(TEXT, mtime=0) + b"!",
        b"g" + zlib.compress(TEXT),
        b"z" + zstandard.ZstdCompressor().compress(TEXT)[:-1],
        b"z" + zstandard.ZstdCompressor(write_content_size=False).compress(TEXT),
    ],
)
def test_malformed_compressed_data_is_reported(content: bytes) -> None:
    with pytest.raises(CodecError):
        chain(Compression()).decode(b"\xc1C" + content, HERE)


@both_seals
def test_no_bit_of_a_sealed_payload_can_be_changed(kind: str) -> None:
    made = chain(sealing(kind))
    sealed = made.encode(b"payload", HERE)
    for position in range(len(sealed)):
        for bit in (1, 128):
            changed = bytearray(sealed)
            changed[position] ^= bit
            with pytest.raises(CodecError):
                made.decode(bytes(changed), HERE)
    for length in range(len(sealed)):
        with pytest.raises(CodecError):
            made.decode(sealed[:length], HERE)


@both_seals
@pytest.mark.parametrize("elsewhere", ELSEWHERE)
def test_a_sealed_payload_is_bound_to_its_job(kind: str, elsewhere: PayloadContext) -> None:
    made = chain(sealing(kind))
    with pytest.raises(CodecError, match="does not fit"):
        made.decode(made.encode(b"payload", HERE), elsewhere)


@both_seals
def test_an_id_unknown_at_the_add_is_not_part_of_the_binding(kind: str) -> None:
    made = chain(sealing(kind))
    sealed = made.encode(b"payload", UNKNOWN_ID)
    assert made.decode(sealed, HERE._replace(id="9")) == b"payload"
    with pytest.raises(CodecError):
        made.decode(sealed, HERE._replace(name="other"))


@both_seals
def test_keys_can_be_rotated(kind: str) -> None:
    before, both, after = (
        chain(sealing(kind, keys)) for keys in ({"old": OLD}, {"new": NEW, "old": OLD}, {"new": NEW})
    )
    early, late = before.encode(b"payload", HERE), both.encode(b"payload", HERE)
    assert both.decode(early, HERE) == both.decode(late, HERE) == after.decode(late, HERE) == b"payload"
    with pytest.raises(CodecError, match="needs the key 'old', which is not among the keys 'new'"):
        after.decode(early, HERE)


@both_seals
def test_another_key_of_the_same_name_is_refused(kind: str) -> None:
    with pytest.raises(CodecError, match="or was written with a different key 'new'"):
        chain(sealing(kind, {"new": OTHER})).decode(chain(sealing(kind)).encode(b"payload", HERE), HERE)


@both_seals
def test_unprotected_payloads_are_read_only_where_allowed(kind: str) -> None:
    with pytest.raises(CodecError, match="not protected by"):
        chain(sealing(kind)).decode(b"\x01", HERE)
    assert chain(sealing(kind, optional=True)).decode(b"\x01", HERE) == b"\x01"
    inside = chain(Compression(threshold=0))
    with pytest.raises(CodecError, match="not protected by"):
        chain(Compression(threshold=0), sealing(kind)).decode(inside.encode(TEXT, HERE), HERE)


def test_a_protection_cannot_be_removed() -> None:
    signed = chain(Signing({"a": OLD})).encode(b"payload", HERE)
    with pytest.raises(CodecError, match="not protected by Encryption"):
        chain(Signing({"a": OLD}), Encryption({"a": NEW})).decode(signed, HERE)


def test_encrypted_payloads_show_nothing_and_never_repeat() -> None:
    made = chain(Encryption({"a": NEW}))
    sealed = {made.encode(b"secret", HERE) for _ in range(1000)}
    assert len(sealed) == 1000
    assert not any(b"secret" in one for one in sealed)
    assert b"secret" in chain(Signing({"a": NEW})).encode(b"secret", HERE)


@both_seals
def test_keys_are_never_shown(kind: str) -> None:
    key = b"-----very-secret-thirty-two-----"
    codec = sealing(kind, {"mine": key})
    texts = [repr(codec), str(codec)]
    for bad in (b"\xc1" + codec.tag, b"\xc1" + codec.tag + bytes(200), b"plain"):
        with pytest.raises(CodecError) as caught:
            chain(codec).decode(bad, HERE)
        texts.append(repr(caught.value))
    with pytest.raises(ValueError, match="must be 32 random bytes, got 31") as short:
        sealing(kind, {"mine": key[:31]})
    with pytest.raises(TypeError) as wrong:
        sealing(kind, {"mine": key.decode()})  # type: ignore[dict-item]
    texts += [repr(short.value), repr(wrong.value)]
    assert not [text for text in texts if "secret" in text]
    assert "'mine'" in repr(codec)
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(codec)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Signing({}), ValueError),
        (lambda: Signing([NEW]), TypeError),  # type: ignore[arg-type]
        (lambda: Signing({"": NEW}), ValueError),
        (lambda: Signing({"ü": NEW}), ValueError),
        (lambda: Signing({"a" * 65: NEW}), ValueError),
        (lambda: Signing({1: NEW}), TypeError),  # type: ignore[dict-item]
        (lambda: Compression("lzma"), ValueError),  # type: ignore[arg-type]
        (lambda: Compression(level=10), ValueError),
        (lambda: Compression("zstd", level=0), ValueError),
        (lambda: Compression(threshold=-1), ValueError),
        (lambda: codecs_of(Compression()), TypeError),
        (lambda: codecs_of(["gzip"]), TypeError),
        (lambda: codecs_of("gzip"), TypeError),
        (lambda: codecs_of([Compression(), Compression("zstd")]), ValueError),
        (lambda: codecs_of([Shift(b"")]), ValueError),
        (lambda: codecs_of([Shift(b"\x00")]), ValueError),
    ],
)
def test_bad_arguments_are_refused(make: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


class Shift:
    """A custom codec."""

    required = False

    def __init__(self, tag: bytes = b"s") -> None:
        self.tag = tag

    def encode(self, data: bytes, context: PayloadContext, /) -> bytes | None:
        return bytes(byte ^ len(context.name) for byte in data)

    def decode(self, content: bytes, context: PayloadContext, /) -> bytes:
        if not content:
            raise RuntimeError("secret detail")
        return bytes(byte ^ len(context.name) for byte in content)


def test_a_custom_codec_can_be_used() -> None:
    made = chain(Shift())
    assert made.encode(b"abc", HERE) == b"\xc1sefg"
    assert made.decode(b"\xc1sefg", HERE) == b"abc"
    with pytest.raises(CodecError, match=r"^Shift raised RuntimeError$"):
        made.decode(b"\xc1s", HERE)


@pytest.mark.parametrize("codecs", [(), (Compression(),)])
def test_a_reader_without_the_codec_names_the_missing_one(codecs: Sequence[Codec]) -> None:
    sealed = Payloads("glide:{q}", None, [Encryption({"a": NEW})]).encode([1], "data", "mail", "7")
    with pytest.raises(
        CodecError, match=r"^data of job 7 cannot be decoded: it was written with Encryption: give"
    ) as caught:
        Payloads("glide:{q}", None, codecs).decode(sealed, "data", "mail", "7")
    assert isinstance(caught.value, SerializationError)
    with pytest.raises(CodecError, match="a codec with the tag b'x'"):
        Payloads("glide:{q}", None, codecs).decode(b"\xc1x", "data", "mail", "7")


def test_the_limit_applies_to_the_encoded_payload() -> None:
    text = "a" * 5_000
    assert (
        Payloads("glide:{q}", None, [Compression()], 200).decode(
            Payloads("glide:{q}", None, [Compression()], 200).encode(text, "data", "n", ""), "data", "n", "7"
        )
        == text
    )
    with pytest.raises(PayloadTooLarge, match="data is 82 bytes"):
        Payloads("glide:{q}", None, [Signing({"a": NEW})], 81).encode("a" * 43, "data", "n", "")


def test_a_name_instead_of_a_codec_is_refused_with_the_correct_form() -> None:
    with pytest.raises(TypeError, match=r"as in codecs=\[Compression\(\)\], got 'gzip'"):
        codecs_of("gzip")
    with pytest.raises(TypeError, match=r"as Compression\(\) has, got 'gzip'"):
        codecs_of(["gzip"])
