"""The command `glidemq doctor`: its options and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from glidemq_async.cli.options import AsJson, CommandTarget, with_target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from glidemq_async.cli.doctor.check import Check, Status
    from glidemq_async.cli.targets import Store
    from glidemq_async.functions.checking import Finding

Deep = Annotated[bool, typer.Option("--deep", help="Also verify the stored data of every queue.")]
_SHOWN_FINDINGS: Final = 5


@with_target
def doctor(target: CommandTarget, deep: Deep = False, as_json: AsJson = False) -> None:
    """Check this machine and its servers: versions, settings that lose jobs, the function library, clock, latency.

    Without --deep the command changes nothing. With --deep it opens every queue as a client does, and reads every job:
    this loads a missing function library, and migrates queues with the layout of an older version. Exit code 1 when a
    check fails, 3 when the server cannot be reached.
    """
    from glidemq_async.cli import output, targets
    from glidemq_async.cli.exits import UNAVAILABLE

    checks = targets.run(_examine(target, deep=deep))
    worst = _worst(checks)
    if as_json:
        fields = ("name", "status", "detail", "advice")
        rows = [{field: getattr(check, field) for field in fields} for check in checks]
        output.print_json({"status": worst, "checks": rows})
    else:
        _print(checks)
    if worst == "fail":
        reached = not any(check.name == "server" and check.status == "fail" for check in checks)
        raise typer.Exit(1 if reached else UNAVAILABLE)


async def _examine(target: CommandTarget, *, deep: bool) -> list[Check]:
    return [check async for check in _checks(target, deep=deep)]


async def _checks(target: CommandTarget, *, deep: bool) -> AsyncIterator[Check]:
    from glidemq_async.cli import targets
    from glidemq_async.cli.doctor.check import fail, ok, warn
    from glidemq_async.cli.doctor.machine import check_machine
    from glidemq_async.cli.doctor.server import check_server
    from glidemq_async.cli.exits import USAGE, CommandError
    from glidemq_async.errors import GlideMQError

    # The checks that need no server come first, so the report contains them also if the server cannot be reached.
    for check in check_machine():
        yield check
    try:
        async with targets.open_store(target) as store:
            ephemeral = store.storage.url.startswith("memory://")
            is_cluster = "+cluster://" in store.storage.url
            async with targets.open_wires(store.storage) as wires:
                yield ok("server", store.storage.url)
                for wire in wires:
                    async for check in check_server(wire, ephemeral=ephemeral, is_cluster=is_cluster):
                        yield check
            if deep:
                async for check in _deep(store):
                    yield check
    # Not a failure: this store has not been used yet.
    except targets.NoStore as error:
        yield warn("server", str(error), "the first client creates it; check --url or GLIDEMQ_URL if it is wrong")
    except (CommandError, GlideMQError) as error:
        if isinstance(error, CommandError) and error.code == USAGE:
            raise
        yield fail("server", str(error), _advice(error))


def _advice(error: Exception) -> str:
    from glidemq_async.storage.redis.connections import LoginRefused

    if isinstance(error, LoginRefused):
        return "correct the user and the password, as in redis://user:password@host (--url, GLIDEMQ_URL)"
    if "NOPERM" in str(error):
        return "the server runs; allow this command to its user"
    return "check that the server runs and that the URL is right (--url, GLIDEMQ_URL)"


async def _deep(store: Store) -> AsyncIterator[Check]:
    from glidemq_async.cli import targets
    from glidemq_async.cli.doctor.check import fail
    from glidemq_async.errors import IncompatibleQueueError, OldWorkersRunning

    for name in await targets.queue_names(store.storage, store.prefix):
        title = f"queue {name}"
        try:
            # Opening a queue connects the storage, which loads a library that is missing or older, as in every client.
            # All other checks of the doctor use connections that load nothing.
            async with store.queue(name) as queue:
                findings = await queue.check()
        except OldWorkersRunning as error:
            yield fail(title, str(error), "stop these workers; the next client that opens the queue migrates it")
        except IncompatibleQueueError as error:
            yield fail(title, str(error), "another program uses these keys; choose another prefix")
        else:
            yield _verdict(title, findings)


def _verdict(title: str, findings: Sequence[Finding]) -> Check:
    from glidemq_async.cli.doctor.check import fail, ok

    if findings:
        shown = "; ".join(f"{one.invariant} {one.subject}: {one.message}" for one in findings[:_SHOWN_FINDINGS])
        advice = "report it as a bug, with this output"
        return fail(title, f"{len(findings)} findings: {shown}", advice)
    return ok(title, "the stored data is sound")


def _worst(checks: list[Check]) -> Status:
    found = {check.status for check in checks}
    return "fail" if "fail" in found else "warn" if "warn" in found else "ok"


_COLORS: Final[Mapping[Status, str | None]] = {"ok": None, "warn": "yellow", "fail": "red"}


def _print(checks: list[Check]) -> None:
    from glidemq_async.cli import output

    width = max(len(check.name) for check in checks)
    for check in checks:
        shown = f"{check.status.upper():<4}  {check.name:<{width}}  {output.line(check.detail)}"
        output.say(shown, color=_COLORS[check.status])
        if check.advice:
            typer.echo(f"      → {output.line(check.advice)}")
    counts = Counter(check.status for check in checks)
    typer.echo(f"\n{counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} failed")
