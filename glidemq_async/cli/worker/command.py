"""The command `glidemq worker`: its options, and one process or a supervisor of several."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from glidemq_async.worker.options import OPTIONS, Flag

App = Annotated[
    str,
    typer.Argument(
        metavar="APP",
        envvar="GLIDEMQ_APP",
        help="module:name of a GlideMQ app, a Worker, a WorkerPool, or a function that returns one; a module alone "
        "means its mq, app or worker.",
    ),
]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", "-q", help="Run jobs of this queue of the app. Can be repeated.", show_default="all"),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        "-p",
        min=1,
        max=512,
        help="Number of worker processes. A supervisor restarts them.",
        show_default="one process without a supervisor",
    ),
]
UntilEmpty = Annotated[
    bool,
    typer.Option("--until-empty", help="End when no job waits any more, nor may come back from a worker that died."),
]
Reload = Annotated[bool, typer.Option("--reload", help="Replace the processes when a Python file changes.")]
ReloadDirs = Annotated[
    list[Path] | None,
    typer.Option("--reload-dir", help="Watch this directory. Can be repeated.", show_default="--app-dir"),
]
AppDir = Annotated[Path, typer.Option("--app-dir", help="Directory that is searched first for the app's module.")]
MostRestarts = Annotated[
    int,
    typer.Option(
        "--max-restarts", min=0, help="Give up when a process dies during its start more than this many times in a row."
    ),
]
Loop = Annotated[
    Literal["auto", "uvloop", "asyncio"],
    typer.Option("--loop", help="The event loop. auto uses uvloop if it is installed."),
]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], typer.Option("--log-level", case_sensitive=False)]
LogFormat = Annotated[
    Literal["text", "json"], typer.Option("--log-format", help="Text lines, or one JSON object per line.")
]


def _with_worker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of WorkerOptions after its option `queue`. It gets those that were typed as keywords."""

    @wraps(command)
    def run(**typed: Any) -> None:
        command(**{name: value for name, value in typed.items() if name not in flags or value is not None})

    flags = {name: option.flag for name, option in OPTIONS.items() if option.flag is not None}
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    after = [each.name for each in own].index("queue") + 1
    shared = [_parameter(name, flag, OPTIONS[name].default) for name, flag in flags.items()]
    run.__signature__ = signature.replace(parameters=[*own[:after], *shared, *own[after:]])  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def _parameter(name: str, flag: Flag, default: object) -> inspect.Parameter:
    names = [f"--{name.replace('_', '-')}", *([flag.short] if flag.short else [])]
    shown = default is not None and str(default)
    option: object = typer.Option(
        *names, min=flag.least, max=flag.most, help=f"{flag.help} For an app.", show_default=shown
    )
    annotation: object = Annotated[flag.kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)


@_with_worker_options
def worker(
    app: App,
    queue: Queues = None,
    processes: Processes = None,
    until_empty: UntilEmpty = False,
    reload: Reload = False,
    reload_dir: ReloadDirs = None,
    app_dir: AppDir = Path(),
    max_restarts: MostRestarts = 5,
    loop: Loop = "auto",
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    **options: float | str,
) -> None:
    """Run the jobs of APP until SIGTERM or Ctrl-C.

    The first SIGTERM or SIGINT waits for running jobs. A second one releases them immediately. SIGHUP replaces the
    worker processes. Exit codes: 0 stopped normally, 2 the app cannot be loaded, 3 the server cannot be used,
    6 stopped by a second signal, 7 the processes kept dying during their start.
    """
    from glidemq_async.cli.worker.settings import Settings

    settings = Settings(
        app=app,
        directory=str(app_dir.resolve()),
        queues=tuple(queue or ()),
        options=options,
        until_empty=until_empty,
        loop=loop,
        log_level=log_level,
        log_format=log_format,
        processes=processes or 1,
    )
    if processes is None and not reload and not reload_dir:
        from glidemq_async.cli.worker.alone import run_alone

        raise typer.Exit(run_alone(settings))
    from glidemq_async.cli.worker.supervised import run_supervised

    watched = [one.resolve() for one in reload_dir or [app_dir]] if reload or reload_dir else []
    raise typer.Exit(run_supervised(settings, processes or 1, max_restarts, watched))
