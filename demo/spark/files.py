"""The jobs of the demonstration. Each hashes a file; the same ones fail on purpose in every run."""

from __future__ import annotations

import hashlib
import sysconfig
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypedDict

QUEUE: Final = "files"
ATTEMPTS: Final = 3
BACKOFF_SECONDS: Final = 1.0
SLOW_SECONDS: Final = 0.5
_SUFFIXES: Final = (".py", ".so", ".txt", ".h", ".json")


class File(TypedDict):
    """The data of a job."""

    path: str
    size: int


class Figures(TypedDict):
    """Figures that are known before the run. The pipeline must find the same ones."""

    jobs: int
    completed: int
    failed: int
    retries: int


def find_files(most: int) -> list[File]:
    """Return files of the running interpreter and its packages in the order of their paths, at most `most`."""
    found: dict[Path, int] = {}
    folders = (sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "include"))
    for path in (path for folder in folders for path in sorted(Path(folder).rglob("*"))):
        if len(found) == most:
            break
        # The interpreter may write files of __pycache__ during the run.
        if "__pycache__" not in path.parts and path.is_file() and not path.is_symlink():
            found[path] = path.stat().st_size
    return [File(path=str(path), size=size) for path, size in sorted(found.items())]


def job_id(path: str) -> str:
    """Return the id of a file's job."""
    return hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:24]


def job_name(path: str) -> str:
    """Return the name of a file's job, which is the kind of the file."""
    suffix = Path(path).suffix
    return f"hash {suffix}" if suffix in _SUFFIXES else "hash other"


def runs_that_fail(path: str) -> int:
    """Return how many runs of a file's job fail: all runs of one job in 60, the first run of one in 10."""
    number = int(job_id(path)[:6], 16)
    return ATTEMPTS if number % 60 == 0 else 1 if number % 10 == 1 else 0


def expected(files: Iterable[File]) -> Figures:
    """Return the figures of the jobs, which are the same whichever process is killed."""
    fates = Counter(runs_that_fail(file["path"]) for file in files)
    jobs, failed = fates.total(), fates[ATTEMPTS]
    return Figures(jobs=jobs, completed=jobs - failed, failed=failed, retries=fates[1] + failed * (ATTEMPTS - 1))


def is_slow(path: str) -> bool:
    """Return True for one job in 20. Such a job is slow, so a killed worker always has a running job."""
    return int(job_id(path)[6:12], 16) % 20 == 0


def hash_file(file: File, failures: int) -> str:
    """Return the SHA-256 of a file. Raises an error on purpose in the first runs of some jobs."""
    if failures < runs_that_fail(file["path"]):
        kind = int(job_id(file["path"])[6:8], 16) % 3
        raise (TimeoutError, ConnectionError, ValueError)[kind]("on purpose")
    if is_slow(file["path"]):
        time.sleep(SLOW_SECONDS)
    digest = hashlib.sha256()
    with Path(file["path"]).open("rb") as opened:
        while part := opened.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()
