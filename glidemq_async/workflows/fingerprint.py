"""The fingerprint of a function's code. Another fingerprint means that the code of a workflow has changed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from hashlib import blake2b
from types import CodeType
from typing import Any, Final, cast

_BYTES: Final = 8


def fingerprint_of(function: Callable[..., Any]) -> str:
    """Return the fingerprint of a function: of its code without line numbers, with the functions inside it.

    Functions that it calls do not count. A version of Python with other instructions has other fingerprints.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    digest = blake2b(digest_size=_BYTES)
    for part in _parts(code) if isinstance(code, CodeType) else ():
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _parts(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield from (repr(names) for names in (code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)
        elif isinstance(constant, frozenset):  # its order varies between processes
            yield repr(sorted(repr(each) for each in cast("frozenset[object]", constant)))
        else:
            yield repr(constant)
