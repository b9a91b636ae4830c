"""The history of a crash run: one file to which every process appends, and its reader.

One system call writes a line to a file opened with O_APPEND, so the line survives a SIGKILL of its writer. checker.py
checks the history.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """One line: the kind of entry, its process, its time (monotonic seconds), and its words."""

    kind: str
    pid: int
    at: float
    words: list[str]


class Journal:
    """Appends lines. The parent opens it once, and every child inherits it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, *words: object) -> None:
        """Append one line."""
        text = " ".join([kind, str(os.getpid()), str(time.monotonic_ns()), *map(str, words)])
        os.write(self._file, f"{text}\n".encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def reader(self) -> JournalReader:
        """Return a reader that begins at the start of the file and follows its growth."""
        return JournalReader(self.path)


class JournalReader:
    """Reads a growing journal."""

    def __init__(self, path: Path) -> None:
        self._file = path.open()
        self._rest = ""

    def new_lines(self) -> Iterator[Line]:
        """Return the lines since the last read. An incomplete line is left for the next read."""
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        for text in lines:
            kind, pid, at, *words = text.split()
            yield Line(kind, int(pid), int(at) / 1e9, words)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


#: The entries of a worker after the server has accepted an outcome that ends a job.
FINAL_KINDS = ("completed", "failed")


@dataclass
class History:
    """The entries of all processes of a run, by job."""

    added: set[str] = field(default_factory=set[str])
    starts: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    finals: dict[str, list[tuple[str, int]]] = field(default_factory=dict[str, list[tuple[str, int]]])
    points: dict[str, int] = field(default_factory=dict[str, int])
    refused: int = 0
    errors: dict[str, int] = field(default_factory=dict[str, int])
    in_hand: dict[int, int] = field(default_factory=dict[int, int])
    """By process: handlers that had started and not ended when it wrote its last line."""

    def take(self, line: Line) -> None:
        """Add one line."""
        words = line.words
        if line.kind == "added":
            self.added.add(words[0])
        elif line.kind == "start":
            self.starts.setdefault(words[0], []).append(int(words[1]))
            self.in_hand[line.pid] = self.in_hand.get(line.pid, 0) + 1
        elif line.kind == "end":
            self.in_hand[line.pid] -= 1
        elif line.kind in FINAL_KINDS:
            self.finals.setdefault(words[0], []).append((line.kind, int(words[1])))
        elif line.kind == "point":
            self.points[words[0]] = self.points.get(words[0], 0) + 1
        elif line.kind == "lost":
            self.refused += 1
        elif line.kind == "error":
            text = " ".join(words)
            self.errors[text] = self.errors.get(text, 0) + 1


def read_history(journal: Journal) -> History:
    """Return everything written so far."""
    history = History()
    for line in read_lines(journal):
        history.take(line)
    return history


def read_lines(journal: Journal) -> list[Line]:
    """Return every line written so far."""
    reader = journal.reader()
    lines = list(reader.new_lines())
    reader.close()
    return lines
