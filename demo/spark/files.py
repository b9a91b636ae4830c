"""The jobs of the demonstration: files to be hashed, some of which fail on purpose, always the same ones."""

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
    """What can be told before anything has run, and is told again by the pipeline afterwards."""

    jobs: int
    completed: int
    failed: int
    retries: int


def find_files(most: int) -> list[File]:
    """Return files of the running interpreter and its packages in the order of their paths, at most so many."""
    found: dict[Path, int] = {}
    places = (sysconfig.get_paths()[place] for place in ("stdlib", "platstdlib", "purelib", "platlib", "include"))
    for path in (path for place in places for path in sorted(Path(place).rglob("*"))):
        if len(found) == most:
            break
        # What the interpreter writes while it runs may be another file a moment later.
        if "__pycache__" not in path.parts and path.is_file() and not path.is_symlink():
            found[path] = path.stat().st_size
    return [File(path=str(path), size=size) for path, size in sorted(found.items())]


def job_id(path: str) -> str:
    """Return the id of a file's job."""
    return hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:24]


def job_name(path: str) -> str:
    """Return the name of a file's job: what kind of file it is."""
    suffix = Path(path).suffix
    return f"hash {suffix}" if suffix in _SUFFIXES else "hash other"


def runs_that_fail(path: str) -> int:
    """Return how many runs of a file's job fail, from the first on: all of one in 60, the first of one in 10."""
    number = int(job_id(path)[:6], 16)
    return ATTEMPTS if number % 60 == 0 else 1 if number % 10 == 1 else 0


def expected(files: Iterable[File]) -> Figures:
    """Return what must come of the jobs, whoever is killed meanwhile."""
    fates = Counter(runs_that_fail(file["path"]) for file in files)
    jobs, failed = fates.total(), fates[ATTEMPTS]
    return Figures(jobs=jobs, completed=jobs - failed, failed=failed, retries=fates[1] + failed * (ATTEMPTS - 1))


def is_slow(path: str) -> bool:
    """Return whether a file's job takes its time, as one in 20 does: there is something to be killed in at any time."""
    return int(job_id(path)[6:12], 16) % 20 == 0


def hash_file(file: File, failures: int) -> str:
    """Return the SHA-256 of a file. Raises what its job is to fail with, so long as it is to."""
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
