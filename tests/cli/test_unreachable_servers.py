"""Commands whose server cannot be reached: each one says so after one attempt, and a service waits for its server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

from glidemq_async.cli.app import build
from tests.cli.shell import Shell

NOWHERE = "redis://127.0.0.1:1"
FILTER = "state:failed"

COMMANDS = {
    "ui token create": ("n",),
    "ui token list": (),
    "ui token revoke": ("1",),
    "queues": (),
    "jobs": (),
    "find": (FILTER,),
    "job": ("q", "1"),
    "explain": ("q", "1"),
    "history": ("q", "1"),
    "failures": (),
    "events": ("q",),
    "watch": (),
    "workers": (),
    "topics": (),
    "schedulers": (),
    "add": ("q", "n"),
    "retry": ("q", "1"),
    "remove": ("q", "1"),
    "revoke": ("q", "1"),
    "promote": ("q", "1"),
    "signal": ("q", "1", "s"),
    "workflows send": ("q", "1", "s"),
    "workflows export": ("q",),
    "workflows graph": ("q", "1"),
    "workflows waterfall": ("q", "1"),
    "workflows list": ("q",),
    "workflows show": ("q", "1"),
    "workflows cancel": ("q", "1"),
    "workflows retry": ("q", "1"),
    "workflows restart": ("q", "1"),
    "workflows accept": ("q", "1"),
    "workflows fork": ("q", "1"),
    "dlq": (),
    "clean": ("q", "--state", "failed"),
    "release": ("q", "d"),
    "pause": ("q",),
    "resume": ("q",),
    "operations change": ("retry", FILTER),
    "operations list": (),
    "operations show": ("1",),
    "operations start": ("1", "--ticket", "t"),
    "operations cancel": ("1",),
    "alerts list": (),
    "alerts add": ("n", "waiting > 5"),
    "alerts remove": ("n",),
    "alerts episodes": (),
    "alerts test": ("n",),
    "settings": ("q",),
    "limits": (),
    "retention": ("q",),
    "drain": ("q",),
    "obliterate": ("q",),
    "audit": (),
    "functions": (),
}
"""Arguments of each command that needs a server and ends by itself."""

VARIANTS = [
    ("jobs", "q"),
    ("failures", "q"),
    ("watch", "q", "1"),
    ("workers", "q"),
    ("topics", "orders"),
    ("schedulers", "q", "--trigger", "s"),
    ("add", "q", "n", "--wait", "1"),
    ("retry", "q", "--filter", FILTER, "--yes"),
    ("dlq", "q", "--replay"),
    ("limits", "q"),
    ("limits", "q", "--concurrency", "2"),
    ("retention", "q", "--completed", "all"),
    ("functions", "--load"),
]
"""Options and arguments with which a command goes another way."""

OTHERS = {
    "worker": "a service",
    "mcp": "a service",
    "operations run": "a service",
    "top": "needs a terminal",
    "demo": "starts its own server",
    "pipeline run": "needs Spark",
    "pipeline report": "needs Spark",
    "pipeline replay": "needs Spark",
    "pipeline backfill": "needs Spark",
    "pipeline demo": "needs Spark",
    "workflows check": "needs no server",
    "doctor": "reports it as one of its checks",
    "acl": "needs no server",
    "healthcheck": "needs no server",
}


def _paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    if not hasattr(command, "list_commands"):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        yield from _paths(command.get_command(context, name), (*path, name))


def test_every_command_is_covered_here() -> None:
    assert sorted(_paths(typer.main.get_command(build()))) == sorted([*COMMANDS, *OTHERS])


@pytest.mark.parametrize(
    "words", [*((*path.split(), *rest) for path, rest in COMMANDS.items()), *VARIANTS], ids=" ".join
)
async def test_a_command_reports_an_unreachable_server_after_one_attempt(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    code, said = await Shell(NOWHERE, tmp_path / "t").fails(*words)
    assert code == 3
    # A client that tried for a while would add for how long.
    assert said.startswith(f"glidemq: cannot reach {NOWHERE}: [Errno 111]")
    assert said.endswith("Start the server, or correct the URL or $GLIDEMQ_URL.")
    assert said.count("\n") == 0
