"""The Lua files that change each structure of the store.

`python -m tests.lua.writers` writes the table into docs/internals/functions.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from glidemq_async.functions import loader
from tests.lua.effects import Library

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "functions.md"
BEGIN, END = "| Structure | Files that change it |\n|---|---|\n", "\n\n"
ANY = "a structure that the caller names"


def writers_of(checked: Library) -> dict[str, list[str]]:
    """Return the files that change each structure, by the name of the structure."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for key, file in checked.writers:
        # A key whose text is not known at all is an item of a list of keys that are removed together.
        if key != "?":
            # "key:" is followed by the name of an ordering key, and "job:@" is one record.
            found[key.strip(":").partition(":")[0] or ANY].add(file)
    return {name: sorted(found[name]) for name in sorted(found)}


def table_of(writers: dict[str, list[str]]) -> str:
    """Return the rows of the table."""
    rows = {name if name == ANY else f"`{name}`": files for name, files in writers.items()}
    return "\n".join(f"| {name} | {', '.join(f'`{file}`' for file in files)} |" for name, files in rows.items())


def written_table() -> str:
    """Return the rows of the table in the documents."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def library_of(names: Iterable[str] = loader.FILES) -> Library:
    """Return the analysis of the function library."""
    folder = Path(loader.__file__).resolve().parent
    return Library((name, (folder / f"{name}.lua").read_text(encoding="utf-8")) for name in names)


def documented_structures() -> set[str]:
    """Return the names of the structures in the table of docs/internals/stored-data.md."""
    text = PAGE.with_name("stored-data.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`B:.*?) \|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`B:(\w+)", row)}


def documented_fields() -> set[str]:
    """Return the names of the fields in the table of docs/internals/stored-data.md about the record."""
    text = PAGE.with_name("stored-data.md").read_text(encoding="utf-8")
    table = text.partition("## The record\n")[2].partition("\n## ")[0]
    return {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


if __name__ == "__main__":
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(head + BEGIN + table_of(writers_of(library_of())) + END + rest.partition(END)[2], encoding="utf-8")
