"""The metrics of several processes as one page. The label `pid` distinguishes their samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from glidemq_async._internal.http_endpoint import Page

_UP: Final = "glidemq_process_up"
_END: Final = "# EOF"


def is_metrics(page: Page) -> bool:
    """Return True if a page has one of the text formats of Prometheus."""
    return page.status == 200 and page.content_type.startswith(("text/plain; version=", "application/openmetrics-text"))


@dataclass(slots=True)
class _Family:
    """A metric: its comment lines and its samples."""

    about: list[str] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)


def merged(pages: Mapping[int, bytes | None]) -> bytes:
    """Merge the pages of several processes, by process id, into one. A page is None if the process did not reply.

    The samples are not summed, because a sum would fall when a process ends, and a counter must not fall.
    """
    families: dict[str, _Family] = {}
    ended = False
    for pid, page in pages.items():
        ended = _read(page or b"", pid, families) or ended
    # A page without a process looks the same as a process without jobs. This metric shows the difference.
    up = families[_UP] = _Family([f"# HELP {_UP} 1 if the worker process replied.", f"# TYPE {_UP} gauge"])
    up.samples += [f'{_UP}{{pid="{pid}"}} {float(page is not None)}' for pid, page in pages.items()]
    lines = [line for family in families.values() for line in (*family.about, *family.samples)]
    return "\n".join([*lines, *([_END] if ended else []), ""]).encode()


def _read(page: bytes, pid: int, families: dict[str, _Family]) -> bool:
    """Add the families of a page. Return True if it has the end mark of OpenMetrics."""
    family, known, ended = _Family(), frozenset(families), False
    for line in page.decode().split("\n"):
        if line.startswith(("# HELP ", "# TYPE ", "# UNIT ")):
            name = line.split(" ", 3)[2]
            family = families.setdefault(name, _Family())
            # Every process describes its metrics, and a page may describe each only once. The first description is
            # kept.
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
