"""System calls by number, through ctypes, for calls that the standard library does not have."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache
from typing import Any, Final

IS_LINUX: Final = sys.platform.startswith("linux")

PR_SET_PDEATHSIG: Final = 1
PR_GET_PDEATHSIG: Final = 2
PR_SET_NO_NEW_PRIVS: Final = 38


@cache
def machine() -> str:
    """Return the instruction set of this process. The filters support "x86_64" and "aarch64"."""
    name = platform.machine().lower()
    if sys.maxsize < 2**32:
        return f"32-bit {name}"
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *arguments: object) -> int:
    """Make a system call. Raises OSError. Integers are passed as long, other values as ctypes passes them."""
    call = _libc().syscall
    call.restype = ctypes.c_long
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = int(call(ctypes.c_long(number), *wide))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def prctl(option: int, *arguments: object) -> int:
    """Call prctl with up to four more arguments. Raises OSError."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    wide = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in padded]
    result = int(_libc().prctl(ctypes.c_int(option), *wide))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
