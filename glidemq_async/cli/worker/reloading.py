"""Watching directories for changed files, for `--reload`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from glidemq_async.cli.exits import USAGE, CommandError

if TYPE_CHECKING:
    from watchfiles import Change


def watch(directories: Sequence[Path]) -> AsyncIterator[Iterable[str]]:
    """Iterate over changes of Python files, collected over some milliseconds. Raises CommandError."""
    try:
        import watchfiles
    except ImportError:
        message = "--reload needs watchfiles, which is not installed: pip install 'glidemq-async[reload]'"
        raise CommandError(message, USAGE) from None
    for directory in directories:
        if not directory.is_dir():
            raise CommandError(f"--reload-dir {directory}: the directory does not exist", USAGE)
    return _changed(_awatch()(*directories, watch_filter=watchfiles.PythonFilter(), step=20))


def _awatch() -> Callable[..., AsyncGenerator[set[tuple[Change, str]]]]:
    import watchfiles

    # Its signature names a type of trio, which is not installed.
    return watchfiles.awatch  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


async def _changed(changes: AsyncIterator[set[tuple[Change, str]]]) -> AsyncGenerator[Iterable[str]]:
    here = Path.cwd()
    async for found in changes:
        yield {_short(Path(path), here) for _, path in found}


def _short(path: Path, here: Path) -> str:
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
