"""The command `glidemq worker`: its options, and one process or a supervisor of several."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from glidemq_async.cli.option_flags import with_flags
from glidemq_async.cli.option_groups import with_groups
from glidemq_async.cli.options import AppDir
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
UntilEmpty = Annotated[
    bool,
    typer.Option("--until-empty", help="End when no job waits, and no job can come back from a worker that died."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorOptions:
    """The processes of a worker, and the supervisor that restarts them."""

    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            "-p",
            min=1,
            max=512,
            help="Number of worker processes. A supervisor restarts them.",
            show_default="one process without a supervisor",
        ),
    ] = None
    max_restarts: Annotated[
        int,
        typer.Option(
            "--max-restarts",
            min=0,
            help="Give up when a process dies during its start more than this many times in a row.",
        ),
    ] = 5
    reload: Annotated[bool, typer.Option("--reload", help="Replace the processes when a Python file changes.")] = False
    reload_dir: Annotated[
        list[Path] | None,
        typer.Option("--reload-dir", help="Watch this directory. Can be repeated.", show_default="--app-dir"),
    ] = None

    @property
    def is_needed(self) -> bool:
        """True if a supervisor runs."""
        return self.processes is not None or self.reload or bool(self.reload_dir)

    def watched(self, app_dir: Path) -> list[Path]:
        """Return the directories whose changes restart the processes."""
        # `--reload-dir` implies `--reload`.
        if not self.reload and not self.reload_dir:
            return []
        return [one.resolve() for one in self.reload_dir or [app_dir]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """The start, the event loop and the log of each process."""

    server_timeout: Annotated[
        float,
        typer.Option(
            "--server-timeout", min=0, help="Seconds to wait at the start for a server that cannot be reached."
        ),
    ] = 60.0
    loop: Annotated[
        Literal["auto", "uvloop", "asyncio"],
        typer.Option("--loop", help="The event loop. auto uses uvloop if it is installed."),
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option("--log-level", case_sensitive=False)
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"], typer.Option("--log-format", help="Text lines, or one JSON object per line.")
    ] = "text"


@with_flags(
    {name: (option.flag, option.default) for name, option in OPTIONS.items() if option.flag is not None},
    after="queue",
    note=" Only for an app.",
)
@with_groups
def worker(
    app: App,
    queue: Queues = None,
    *,
    supervisor: SupervisorOptions,
    until_empty: UntilEmpty = False,
    app_dir: AppDir = Path(),
    process: ProcessOptions,
    **options: float | str,
) -> None:
    """Run the jobs of APP until SIGTERM or Ctrl-C.

    The first SIGTERM or SIGINT waits for running jobs. A second one releases them immediately. SIGHUP replaces the
    worker processes. Exit codes: 0 stopped normally, 2 the app cannot be loaded, 3 the server cannot be used,
    6 stopped by a second signal, 7 the processes kept dying during their start.
    """
    # The modules are imported here, so that `glidemq --help` and the other commands start without them. Neither this
    # function nor the supervisor imports the app. Each worker process imports it, so that a process which is started
    # after a change of the files gets the new code.
    from glidemq_async.cli.worker.settings import WorkerSettings

    settings = WorkerSettings(
        app=app,
        directory=str(app_dir.resolve()),
        queues=tuple(queue or ()),
        options=options,
        until_empty=until_empty,
        processes=supervisor.processes or 1,
        **asdict(process),
    )
    if not supervisor.is_needed:
        from glidemq_async.cli.worker.process import run_process

        raise typer.Exit(run_process(settings))
    from glidemq_async.cli.worker.supervised import run_supervised

    watched = supervisor.watched(app_dir)
    raise typer.Exit(run_supervised(settings, settings.processes, supervisor.max_restarts, watched))
