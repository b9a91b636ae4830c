"""The command `glidemq functions`: the function library of each server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, CommandTarget, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document

Load = Annotated[bool, typer.Option("--load", help="Load the library on servers where it is missing or older.")]


@with_target
def functions(target: CommandTarget, load: Load = False, as_json: AsJson = False) -> None:
    """Show the version of the function library in this package and on each server.

    Without --load nothing is loaded. Other commands and all clients load a missing library themselves.
    """
    from glidemq_async.cli import targets
    from glidemq_async.cli.doctor.library import loaded_libraries, shipped_document

    async def look() -> Document:
        async with targets.open_store(target, make=load) as store:
            # Only `connect` loads the library. The connections of `open_wires` look at the servers without loading
            # anything.
            if load:
                await store.storage.connect()
            async with targets.open_wires(store.storage) as wires:
                found = [one for wire in wires for one in await loaded_libraries(wire)]
        return {"shipped": shipped_document(), "loaded": found}

    answer(look(), _show_functions, as_json=as_json)


def _show_functions(document: Document) -> None:
    from glidemq_async.cli import tables

    found = document["loaded"]
    rows = [
        [one.get("server", "this package"), *(one[name] for name in ("library", "version", "fingerprint"))]
        for one in (document["shipped"], *found)
    ]
    tables.print_table(["where", "library", "version", "fingerprint"], rows, empty="")
    if not found:
        typer.echo("no server has the library; --load or the first client loads it")
