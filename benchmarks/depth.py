"""The costs of a job by the number of waiting jobs, and by the number of jobs for each key, as text."""

from __future__ import annotations

from typing import Final

from .driven import BATCH
from .figures import MeasuredRows
from .shapes import COMPARED, FEW, FEW_IN_LINES, LINE, LINES, SINGLE, STEPS
from .tables import Table, markdown, spread_text

_METRICS: Final = {"server CPU": "server_us", "server commands": "command_us"}


def _cells(figures: MeasuredRows, row: str, to: str) -> list[str]:
    return [spread_text(figures.ratio(row, to, metric)) for metric in _METRICS.values()]


def depth_table(figures: MeasuredRows) -> Table:
    """Return the cost of a job while a million jobs wait, as a share of its cost in a queue of the same shape."""
    lines: Table = [["deep relative to shallow", *_METRICS]]
    for shape in COMPARED:
        for step in STEPS:
            lines.append([f"{shape}: {step}", *_cells(figures, f"deep, {shape}: {step}", f"shallow, {shape}: {step}")])
    return lines


def lines_table(figures: MeasuredRows) -> Table:
    """Return the cost of a job of a long line as a share of the cost of the only job of a key."""
    lines: Table = [[f"{LINE} jobs for each key relative to 1 job", *_METRICS]]
    pairs = {
        "1,000,000 waiting jobs in both queues": ("deep", "deep"),
        f"{FEW_IN_LINES:,} and {FEW:,} waiting jobs": ("shallow", "shallow"),
        f"1,000,000 and {FEW:,} waiting jobs": ("deep", "shallow"),
    }
    for title, (depth, other) in pairs.items():
        for step in STEPS:
            row, to = f"{depth}, {LINES}: {step}", f"{other}, {SINGLE}: {step}"
            lines.append([f"{title}: {step}", *_cells(figures, row, to)])
    return lines


def text(figures: MeasuredRows) -> str:
    """Return both tables for a page, and what they compare."""
    return f"""{markdown(depth_table(figures))}

{markdown(lines_table(figures))}

- *deep*: jobs are claimed, completed and added in batches of {BATCH} in a queue in which 1,000,000 jobs wait (fewer
  with `--quick`). They alternate with a *shallow* queue on the same server. The figures are medians of the turns.
- Both queues of the first table have the same kind of jobs, and the same number of jobs for each key. They keep it,
  because each new job gets the key of a job that was completed. Both have as many events as the server keeps.
- In the shallow queue {FEW:,} jobs wait, or {FEW_IN_LINES:,} in lines of {LINE} jobs. A batch needs as many keys as
  jobs, because each key runs one job at a time. So {FEW:,} jobs in such lines would be too few.
- The second table compares long lines with single jobs. The server stores the first jobs of a line in a text, which
  has room for some five, and the others of each key in a list, which takes a command of its own. The last two lines
  also differ in the number of waiting jobs. They have no target."""
