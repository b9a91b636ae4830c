"""The command `glidemq worker`: its options, and one process or a supervisor of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from glidemq_async.cli.option_flags import with_flags
from glidemq_async.worker.options import OPTIONS

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
    typer.Option("--until-empty", help="End when no job waits, and no job can come back from a worker that died."),
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
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", case_sensitive=False, help="The lowest level that is logged."),
]
LogFormat = Annotated[
    Literal["text", "json"], typer.Option("--log-format", help="Text lines, or one JSON object per line.")
]


@with_flags(
    {name: (option.flag, option.default) for name, option in OPTIONS.items() if option.flag is not None},
    after="queue",
    note=" Only for an app.",
)
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
    from glidemq_async.cli.worker.settings import WorkerSettings

    settings = WorkerSettings(
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
        from glidemq_async.cli.worker.process import run_process

        raise typer.Exit(run_process(settings))
    from glidemq_async.cli.worker.supervised import run_supervised

    watched = [one.resolve() for one in reload_dir or [app_dir]] if reload or reload_dir else []
    raise typer.Exit(run_supervised(settings, processes or 1, max_restarts, watched))
