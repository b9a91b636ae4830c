from glidemq_async.payloads.codecs.chain import Codec as Codec
from glidemq_async.payloads.codecs.chain import CodecChain as CodecChain
from glidemq_async.payloads.codecs.chain import PayloadContext as PayloadContext
from glidemq_async.payloads.codecs.compression import Compression as Compression
from glidemq_async.payloads.codecs.keyring import generate_key as generate_key
from glidemq_async.payloads.codecs.sealing import Encryption as Encryption
from glidemq_async.payloads.codecs.sealing import Signing as Signing
