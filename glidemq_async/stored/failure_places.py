"""The place of an exception: the innermost frame of the user's code."""

from __future__ import annotations

import sys
from pathlib import PurePath
from types import FrameType
from typing import Final

LONGEST_PLACE: Final = 200

_LIBRARY: Final = __name__.partition(".")[0]
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_MOST_CAUSES: Final = 5
_MOST_FRAMES: Final = 1_000


def is_users(frame: FrameType) -> bool:
    """Return whether a frame belongs neither to this library nor to the standard library."""
    module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return module != _LIBRARY and module not in sys.stdlib_module_names


def place_of(error: BaseException) -> str:
    """Return the place of an exception as "<file>:<function>:<line>", "" if no code of the user is involved.

    Installed packages count as code of others. An exception of the library takes the place of its cause.
    """
    at: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if at is None:
            break
        if place := _innermost(at):
            return place
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return ""


def _innermost(error: BaseException) -> str:
    found = ""
    trace = error.__traceback__
    for _ in range(_MOST_FRAMES):
        if trace is None:
            break
        code = trace.tb_frame.f_code
        if is_users(trace.tb_frame) and not _is_installed(trace.tb_frame):
            found = f"{_shortened(code.co_filename)}:{code.co_name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found[-LONGEST_PLACE:]


def _is_installed(frame: FrameType) -> bool:
    # The code of a compiled module names its source, which may not exist here. Its module has the path of the library.
    files = (frame.f_code.co_filename, str(frame.f_globals.get("__file__", "")))
    return any(not _INSTALLED.isdisjoint(PurePath(file).parts) for file in files)


def _shortened(file: str) -> str:
    """Return a file relative to the folder from which it was imported, so that all deploys have the same text."""
    folders = [folder for folder in sys.path if folder and file.startswith(folder.rstrip("/\\") + _separator(folder))]
    if folders:
        return file[len(max(folders, key=len)) :].lstrip("/\\").replace("\\", "/")
    return "/".join(PurePath(file).parts[-2:])


def _separator(folder: str) -> str:
    return "\\" if "\\" in folder else "/"
