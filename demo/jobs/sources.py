"""Finding the files that the demonstration measures."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Final, NamedTuple

_SKIPPED: Final = frozenset({"site-packages", "dist-packages", "__pycache__"})


class Sources(NamedTuple):
    """A directory, the relative paths of its Python files, and the number of files whose names are not valid UTF-8."""

    root: Path
    files: list[str]
    left_out: int


def standard_library() -> Path:
    """Return the directory of the interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def find_sources(path: Path) -> Sources:
    """Find every `.py` file below a directory, or take one file.

    Installed packages and hidden directories are left out. Links to directories are not followed.
    """
    path = path.resolve()
    if path.is_file():
        return _sources(path.parent, [path.name])
    found: list[str] = []
    for directory, below, names in os.walk(path):
        below[:] = sorted(name for name in below if name not in _SKIPPED and not name.startswith("."))
        relative = Path(directory).relative_to(path)
        found += [str(relative / name) for name in sorted(names) if name.endswith(".py")]
    return _sources(path, found)


def _sources(root: Path, found: list[str]) -> Sources:
    # A name that is not valid UTF-8 can neither be part of a payload nor be printed.
    files = [file for file in found if _is_text(f"{root}{file}")]
    return Sources(root, files, len(found) - len(files))


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
