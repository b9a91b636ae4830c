"""The arguments and options that many commands share."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, NoReturn

import typer

from glidemq_async.cli.option_groups import declare


def _complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    # By its name, because the module imports this one.
    complete = import_module("glidemq_async.cli.completion").complete_queue
    names: list[str] = complete(ctx.params, incomplete)
    return names


QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The name of the queue.", autocompletion=_complete_queue)
]
OneQueue = Annotated[
    str | None,
    typer.Argument(
        metavar="QUEUE", help="The name of a queue.", show_default="every queue", autocompletion=_complete_queue
    ),
]
JobId = Annotated[str, typer.Argument(metavar="JOB_ID", help="The id of the job.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        show_default="the server of --app, else $GLIDEMQ_URL, else the embedded server",
        help="The server of the queues: redis://host:port, file:///directory, …",
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option(
        "--prefix", help="The prefix of the store keys of the queues.", show_default="the prefix of --app, else glide"
    ),
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
AppDir = Annotated[Path, typer.Option("--app-dir", help="Directory that is searched first for the app's module.")]
Reason = Annotated[
    str, typer.Option("--reason", help="The reason, in one line. The audit lines store it.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Maximum number of rows.")]


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """The server or app that a command works on, as typed. `app` is the object that `spec` names; both can be None."""

    url: str | None
    prefix: str | None
    spec: str | None = None
    app: object = None


def with_target(command: Callable[Concatenate[CommandTarget, ...], None]) -> Callable[..., None]:
    """Add the options that choose the target to a command, before --json. It gets the target as its first argument."""

    @wraps(command)
    def run(**typed: Any) -> None:
        target = target_of(*(typed.pop(name) for name, _, _ in _SHARED))
        command(target, **typed)

    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in _SHARED
    ]
    before = [each for each in own if each.name != "as_json"]
    after = [each for each in own if each.name == "as_json"]
    return declare(run, [*before, *shared, *after])


_SHARED: Final = (("url", Url, None), ("prefix", Prefix, None), ("app", App, None), ("app_dir", AppDir, Path()))


def target_of(url: str | None, prefix: str | None, app: str | None, directory: Path) -> CommandTarget:
    """Return the target of these options. Raises BadParameter for an app together with a prefix."""
    if not app:  # --app "" ignores $GLIDEMQ_APP
        return CommandTarget(url, prefix)
    from glidemq_async.cli.apps import load

    if prefix is not None:
        raise typer.BadParameter(
            "an app has its own prefix; omit --prefix, or ignore the app with --app ''", param_hint="--prefix"
        )
    return CommandTarget(url, None, app, load(app, directory.resolve()))


def parse_json(option: str, text: str) -> Any:
    """Return the value of JSON text. Raises BadParameter, which names the option."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        raise typer.BadParameter(f"invalid JSON: {error} (a text needs quotes)", param_hint=option) from None
    except RecursionError:
        raise typer.BadParameter("invalid JSON: it is nested too deeply", param_hint=option) from None


def _refuse(constant: str) -> NoReturn:
    # Python's parser accepts NaN and Infinity, which are not JSON.
    raise ValueError(constant)
