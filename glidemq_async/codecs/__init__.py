"""Payload codecs: what is done to encoded data, results and progress before they are sent, and undone when read.

See docs/serialization.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glidemq_async.codecs.chain import Codec, CodecChain, PayloadContext
    from glidemq_async.codecs.compression import Compression
    from glidemq_async.codecs.keyring import generate_key
    from glidemq_async.codecs.sealing import Encryption, Signing
else:
    from glidemq_async import lazy

    __getattr__, __dir__ = lazy.attributes(
        __name__,
        {
            ".chain": "Codec CodecChain PayloadContext",
            ".compression": "Compression",
            ".keyring": "generate_key",
            ".sealing": "Encryption Signing",
        },
    )

__all__ = ["Codec", "CodecChain", "Compression", "Encryption", "PayloadContext", "Signing", "generate_key"]
