"""The command `glidemq functions`: which function library each server has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, Place, placed

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document

Load = Annotated[bool, typer.Option("--load", help="Load it where it is missing or older.")]


@placed
def functions(place: Place, load: Load = False, as_json: AsJson = False) -> None:
    """Tell the version of the function library of this package, and of those that the servers have.

    Looking loads nothing; every other command and every client loads what is missing.
    """
    from glidemq_async.cli import targets
    from glidemq_async.cli.doctor.library import loaded_libraries, shipped_document

    async def look() -> Document:
        async with targets.open_store(place, make=load) as store:
            if load:
                await store.storage.connect()
            async with targets.open_wires(store.storage) as wires:
                found = [one for wire in wires for one in await loaded_libraries(wire)]
        return {"shipped": shipped_document(), "loaded": found}

    answer(look(), _show_functions, as_json=as_json)


def _show_functions(document: Document) -> None:
    from glidemq_async.cli import output

    found = document["loaded"]
    rows = [
        [one.get("server", "this package"), *(one[name] for name in ("library", "version", "fingerprint"))]
        for one in (document["shipped"], *found)
    ]
    output.print_table(["where", "library", "version", "fingerprint"], rows, empty="")
    if not found:
        typer.echo("no server has it; --load loads it, and so does the first client")
