# The part of msgpack that this project uses; the package itself is not typed.

from collections.abc import Callable
from typing import NamedTuple

class ExtType(NamedTuple):
    code: int
    data: bytes

class Packer:
    def __init__(
        self,
        *,
        default: Callable[[object], object] | None = None,
        use_bin_type: bool = True,
        strict_types: bool = False,
        datetime: bool = False,
        unicode_errors: str | None = None,
        buf_size: int = ...,
    ) -> None: ...
    def pack(self, obj: object) -> bytes: ...
    def reset(self) -> None: ...

def packb(
    o: object,
    *,
    default: Callable[[object], object] | None = None,
    use_bin_type: bool = True,
    strict_types: bool = False,
) -> bytes: ...
def unpackb(
    packed: bytes | bytearray | memoryview,
    *,
    raw: bool = False,
    use_list: bool = True,
    strict_map_key: bool = True,
    ext_hook: Callable[[int, bytes], object] = ...,
    timestamp: int = 0,
    max_str_len: int = -1,
    max_bin_len: int = -1,
    max_array_len: int = -1,
    max_map_len: int = -1,
    max_ext_len: int = -1,
) -> object: ...
