"""The figures of the lean path as text: its tables for the terminal, and its section of docs/reports/bench.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from benchmarks import depth
from benchmarks.call_times import LEAST
from benchmarks.figures import MeasuredRows
from benchmarks.lean.scenarios import VALKEY, on
from benchmarks.lean.targets import LEAN_TARGETS
from benchmarks.report import failure_lines, longest_table, main_table, processor_table, target_table
from benchmarks.tables import Table, markdown, number, plain, spread_text
from benchmarks.targets import judge
from benchmarks.venvs import OWN_VERSION, VERSIONS

BEGIN: Final = "<!-- the lean path -->\n"
END: Final = "<!-- end of the lean path -->\n"
_SECTION: Final = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
OWN: Final = on(OWN_VERSION)


def share_table(figures: MeasuredRows) -> Table:
    """Return the figures that have no target as shares of the bare loop: versions of Python, and Valkey."""
    columns = {"rate": "rate", "client CPU": "client_us", "server CPU": "server_us"}
    lines: Table = [["relative to the bare loop", *columns]]
    pairs = [(f"drain, concurrency 100{suffix}", f"loop, drain{suffix}") for suffix in (*map(on, VERSIONS), VALKEY)]
    pairs += [
        ("add, bulk", f"loop, adds in pipelines{OWN}"),
        (f"add, bulk{VALKEY}", f"loop, adds in pipelines{VALKEY}"),
    ]
    for row, to in pairs:
        cells = [spread_text(figures.ratio(row, to, metric)) for metric in columns.values()]
        lines += [[row, *cells]] if any(cells) else []
    return lines


def terminal(figures: MeasuredRows) -> str:
    """Return all tables for the terminal."""
    tables = (
        main_table(figures),
        share_table(figures),
        depth.depth_table(figures),
        depth.lines_table(figures),
        longest_table(figures),
        processor_table(figures),
        target_table(judge(figures, LEAN_TARGETS)),
    )
    return "\n\n".join(plain(table) for table in tables if len(table) > 1)


def section(figures: MeasuredRows, rounds: int, about: Mapping[str, str]) -> str:
    """Return the section of the page."""
    facts = "\n".join(f"- {name}: {value}" for name, value in about.items())
    return f"""{BEGIN}
## The lean path

Written by `make bench` and by `make bench-lean`. This part runs on TCP with the default settings of the server, except
that it writes no snapshots. The figures are medians of {rounds} rounds. Every second round runs backwards.

{facts}
{failure_lines(figures)}
{markdown(target_table(judge(figures, LEAN_TARGETS)))}

{markdown(share_table(figures))}

{depth.text(figures)}

{markdown(longest_table(figures))}

{markdown(processor_table(figures))}

{markdown(main_table(figures))}

- *bare loop*: redis-py with hiredis and uvloop. It adds with XADD, in pipelines of 500 or awaited one by one. It claims
  with XREADGROUP COUNT 100, decodes each payload, awaits the same handler, and ends a batch with one XACK and one XDEL.
- *two hops*: one XADD to the bare loop, and one XADD from it to a stream from which the caller reads.
- *bytes*: the server's memory for a waiting job, without the buffers of clients.
- *longest calls*: the time between the start and the end of one function call, from the slow log. It includes the time
  during which the kernel ran another process, so a busy machine makes calls longer. The longest commands of the bare
  loop, which need a few microseconds, show how long that was.
- *processor time*: in the FastAPI service and while the deep queues are filled, the server notes both times of each
  call of {number(LEAST)} µs or more: the time between its start and its end, and the processor time of its thread. The
  difference is the time that the machine took. The three figures include some 10 µs of the measurement.
{END}"""


def with_section(page: str, text: str) -> str:
    """Return a page with the section in place of its earlier one, or after the page."""
    if _SECTION.search(page):
        return _SECTION.sub(lambda _: text, page)
    return f"{page.rstrip()}\n\n{text}"
