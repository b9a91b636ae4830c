"""The command top, which shows the queues in a terminal. It needs the extra `tui`."""

from __future__ import annotations

import importlib.util

from glidemq_async.cli.options import CommandTarget, with_target


@with_target
def top(target: CommandTarget) -> None:
    """Show queues, jobs, workers and schedulers in the terminal, and change them. `?` lists the keys.

    It only reads until the key `w` permits changes. Each change shows a preview first, and writes an audit line.
    """
    from glidemq_async.cli import output, targets
    from glidemq_async.cli.exits import USAGE, CommandError

    if importlib.util.find_spec("textual") is None:
        raise CommandError("top needs textual, which is not installed; run pip install 'glidemq-async[tui]'", USAGE)
    if not output.in_terminal():
        raise CommandError("top needs a terminal; in a pipe use `glidemq queues` or `glidemq watch`", USAGE)

    async def show() -> None:
        from glidemq_async.tui.app import Top
        from glidemq_async.tui.source import TopSource

        async with targets.open_ops(target, source="tui") as ops:
            await Top(TopSource(ops)).run_async()

    targets.run(show())
