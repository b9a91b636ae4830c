"""The arguments and options that many commands share."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, NoReturn

import typer

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.")]
JobId = Annotated[str, typer.Argument(metavar="JOB_ID", help="The id of the job.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        show_default="that of --app, else $GLIDEMQ_URL, else the embedded default",
        help="Where the queues live: redis://host:port, file:///directory, …",
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option("--prefix", help="What the keys of the queues start with.", show_default="that of --app, else glide"),
]
App = Annotated[
    str | None,
    typer.Option(
        "--app",
        "-A",
        metavar="APP",
        envvar="GLIDEMQ_APP",
        help="module:name of the GlideMQ app of the queues: its storage, prefix, codecs and serializer are used.",
    ),
]
AppDir = Annotated[Path, typer.Option("--app-dir", help="Where the app's module is looked for first.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="At most so many.")]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command looks, as it was typed. `app` is what was loaded of `spec`, both None without one."""

    url: str | None
    prefix: str | None
    spec: str | None = None
    app: object = None


def placed(command: Callable[Concatenate[Place, ...], None]) -> Callable[..., None]:
    """Give a command the options that say where it looks, as its first argument. They stand before --json."""

    @wraps(command)
    def run(**typed: Any) -> None:
        place = _place(*(typed.pop(name) for name, _, _ in _SHARED))
        command(place, **typed)

    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in _SHARED
    ]
    before = [each for each in own if each.name != "as_json"]
    after = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own if each.name == "as_json"]
    run.__signature__ = signature.replace(parameters=[*before, *shared, *after])  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


_SHARED: Final = (("url", Url, None), ("prefix", Prefix, None), ("app", App, None), ("app_dir", AppDir, Path()))


def _place(url: str | None, prefix: str | None, app: str | None, directory: Path) -> Place:
    if not app:  # "" is for those who have $GLIDEMQ_APP set and want none
        return Place(url, prefix)
    from glidemq_async.cli.apps import load

    if prefix is not None:
        raise typer.BadParameter("an app has its own: leave it out, or give --app ''", param_hint="--prefix")
    return Place(url, None, app, load(app, directory.resolve()))


def parse_json(option: str, text: str) -> Any:
    """Return the value of JSON that was typed. Raises BadParameter, which names the option."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        raise typer.BadParameter(f"it is no JSON: {error} (a text needs quotes)", param_hint=option) from None
    except RecursionError:
        raise typer.BadParameter("it is no JSON: it is nested too deeply", param_hint=option) from None


def _refuse(constant: str) -> NoReturn:
    # Python takes them for numbers, and nobody else does.
    raise ValueError(constant)
