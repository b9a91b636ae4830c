"""The command `glidemq worker`: its options, and one process or a supervisor of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

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
    typer.Option("--queue", "-q", help="Work on this queue of the app; repeat it for more.", show_default="all"),
]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", "-c", min=1, help="Jobs at a time in each process, of an app.")
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        "-p",
        min=1,
        max=512,
        help="Start so many processes under a supervisor that restarts them.",
        show_default="this process, without a supervisor",
    ),
]
UntilEmpty = Annotated[
    bool,
    typer.Option("--until-empty", help="End when no job waits any more, nor may come back from a worker that died."),
]
Reload = Annotated[bool, typer.Option("--reload", help="Replace the processes when a Python file changes.")]
ReloadDirs = Annotated[
    list[Path] | None, typer.Option("--reload-dir", help="Watch this directory; repeat it.", show_default="--app-dir")
]
ShutdownTimeout = Annotated[
    float | None,
    typer.Option("--shutdown-timeout", min=0, help="Seconds for running jobs after the first SIGTERM, of an app."),
]
HealthPort = Annotated[
    int | None,
    typer.Option(
        "--health-port",
        min=1,
        max=65535,
        help="Answer /healthz and /readyz on this port, for all processes together, of an app.",
    ),
]
AppDir = Annotated[Path, typer.Option("--app-dir", help="Where the app's module is looked for first.")]
MostRestarts = Annotated[
    int,
    typer.Option(
        "--max-restarts", min=0, help="Give up when a process dies before it worked, more often than this in a row."
    ),
]
Loop = Annotated[
    Literal["auto", "uvloop", "asyncio"], typer.Option("--loop", help="The event loop; auto: uvloop if installed.")
]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], typer.Option("--log-level", case_sensitive=False)]
LogFormat = Annotated[
    Literal["text", "json"], typer.Option("--log-format", help="Lines for people, or a JSON object a line.")
]


def worker(
    app: App,
    queue: Queues = None,
    concurrency: Concurrency = None,
    processes: Processes = None,
    until_empty: UntilEmpty = False,
    reload: Reload = False,
    reload_dir: ReloadDirs = None,
    shutdown_timeout: ShutdownTimeout = None,
    health_port: HealthPort = None,
    app_dir: AppDir = Path(),
    max_restarts: MostRestarts = 5,
    loop: Loop = "auto",
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Run the jobs of APP until SIGTERM or Ctrl-C.

    The first SIGTERM (or SIGINT) lets running jobs end, a second one hands them back at once, SIGHUP replaces the
    worker processes. Exit codes: 0 stopped in order, 2 the app cannot be loaded, 3 the server cannot be used,
    6 told twice to stop, 7 the processes died at once again and again.
    """
    from glidemq_async.cli.worker.settings import Settings

    settings = Settings(
        app=app,
        directory=str(app_dir.resolve()),
        queues=tuple(queue or ()),
        concurrency=concurrency,
        shutdown_timeout=shutdown_timeout,
        health_port=health_port,
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
