"""The metrics of several processes as one page: every sample of each, told apart by the label `pid`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from glidemq_async._internal.http_endpoint import Page

_UP: Final = "glidemq_process_up"
_END: Final = "# EOF"


def is_metrics(page: Page) -> bool:
    """Whether a page is in one of the text formats of Prometheus."""
    return page.status == 200 and page.content_type.startswith(("text/plain; version=", "application/openmetrics-text"))


@dataclass(slots=True)
class _Family:
    """A metric: what is said about it, and its samples."""

    about: list[str] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)


def merged(pages: Mapping[int, bytes | None]) -> bytes:
    """Return one page of those of several processes by their ids, None for one that gave no answer.

    Nothing is added up: counters of processes that come and go cannot be, without counting down.
    """
    families: dict[str, _Family] = {}
    ended = False
    for pid, page in pages.items():
        ended = _read(page or b"", pid, families) or ended
    up = families[_UP] = _Family([f"# HELP {_UP} Whether a worker process answered.", f"# TYPE {_UP} gauge"])
    up.samples += [f'{_UP}{{pid="{pid}"}} {float(page is not None)}' for pid, page in pages.items()]
    lines = [line for family in families.values() for line in (*family.about, *family.samples)]
    return "\n".join([*lines, *([_END] if ended else []), ""]).encode()


def _read(page: bytes, pid: int, families: dict[str, _Family]) -> bool:
    """Add the families of a page; tells whether it has the end mark of OpenMetrics."""
    family, known, ended = _Family(), frozenset(families), False
    for line in page.decode().split("\n"):
        if line.startswith(("# HELP ", "# TYPE ", "# UNIT ")):
            name = line.split(" ", 3)[2]
            family = families.setdefault(name, _Family())
            if name not in known:
                family.about.append(line)
        elif line.startswith("#"):
            ended = ended or line == _END
        elif line:
            family.samples.append(_labelled(line, pid))
    return ended


def _labelled(sample: str, pid: int) -> str:
    label = f'pid="{pid}"'
    name, space, value = sample.partition(" ")
    bare, brace, rest = sample.partition("{")
    if not brace or len(name) < len(bare):
        return f"{name}{{{label}}}{space}{value}"
    return f"{bare}{{{label}{'' if rest.startswith('}') else ','}{rest}"
