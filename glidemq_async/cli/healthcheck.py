"""The command `glidemq healthcheck`: checks a worker on this host, for probes that run a command."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeAlias, cast

import typer

from glidemq_async.cli import output
from glidemq_async.cli.options import AsJson

Document: TypeAlias = "dict[str, Any]"

Port = Annotated[
    int, typer.Option("--port", "-p", min=1, max=65535, envvar="GLIDEMQ_HEALTH_PORT", help="The worker's health port.")
]
Host = Annotated[str, typer.Option("--host", help="The host of the worker.")]
Ready = Annotated[
    bool, typer.Option("--ready", help="Check that the workers claim jobs, not only that they are alive.")
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.01, help="Seconds to wait for the reply.")]


def healthcheck(
    port: Port, host: Host = "127.0.0.1", ready: Ready = False, timeout: Timeout = 3.0, as_json: AsJson = False
) -> None:
    """Check the workers behind a health port. The exit code is 0 if all are healthy, and 1 otherwise.

    A worker with a blocked event loop does not reply, so it counts as unhealthy.
    """
    import http.client

    # A probe runs every few seconds for as long as the worker lives. This needs no event loop and imports nothing of
    # the library that connects to a server. A worker whose server is unreachable can still be checked.
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", "/readyz" if ready else "/healthz")
        response = connection.getresponse()
        well, found = response.status == http.HTTPStatus.OK, _read(response.read())
    except (OSError, http.client.HTTPException) as error:
        well, found = False, _none(f"no reply from {host}:{port} within {timeout:g} s: {error!r}")
    finally:
        connection.close()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for line in _lines(found):
            typer.echo(output.text(line), err=not well)
    if not well:
        raise typer.Exit(1)


def _read(body: bytes) -> Document:
    try:
        # Any: what another program sent.
        found = cast("Document", json.loads(body))
        workers = {
            name: {"queue": None, **each, "problems": list(each["problems"])} for name, each in found["workers"].items()
        }
        return {"status": str(found["status"]), "workers": workers, "problem": None}
    except (ValueError, KeyError, TypeError, AttributeError):
        return _none(f"this is not the health port of a worker: {body[:200]!r}")


def _none(problem: str) -> Document:
    return {"status": "failing", "workers": {}, "problem": problem}


def _lines(found: Document) -> list[str]:
    """One line per worker."""
    if found["problem"] is not None:
        return [found["problem"]]
    return [f"{_title(name, each)}: {'; '.join(each['problems']) or 'ok'}" for name, each in found["workers"].items()]


def _title(name: str, worker: Document) -> str:
    return f"{name} ({worker['queue']})" if worker["queue"] is not None else name
