"""Requests that schemathesis makes from the document of the API: each gets a documented reply, and none a defect."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from functools import cache
from typing import Any, cast

import pytest

pytest.importorskip("schemathesis", reason="pip install schemathesis for the tests of the document")

import requests
import schemathesis as installed
from httpx2 import AsyncClient, Response
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable

from glidemq_async import Queue, Schedule
from glidemq_async.ops.core import Ops
from glidemq_async.storage import Storage
from glidemq_async.web.api import ENDPOINTS, openapi
from glidemq_async.web.endpoints import ApiRoute
from tests.web.clients import LOCAL, serving

# pyright does not know what these functions return.
schemathesis: Any = installed

pytestmark = [pytest.mark.only_on("memory"), pytest.mark.timeout(600)]
ENDLESS = {"streamEvents", "streamChunks"}
"""Streams that do not end by themselves. Other tests read them."""
LONGEST_WAIT = 0.01
"""Requests may wait for 60 seconds, which would take the time of other requests here."""
OTHER_CHECKS = ("ignored_auth",)
"""Checks that send their own requests to a server. The matrix of rights tests what they look for."""
MEANINGS = {"filter-error", "invalid-value", "serialization-error", "settings-changed"}
"""Problems with values of the right type. The document does not describe what is wrong with them."""
_EVERY_CHECK: Any = list(HealthCheck)


@cache
def schema() -> Any:
    """Return the document of the API."""
    # The client of this machine needs no credentials.
    return schemathesis.openapi.from_dict({**openapi(), "security": []})


def route_id(route: ApiRoute) -> str:
    """Return the id of a case."""
    return route.name


ROUTES = [route for route in ENDPOINTS if route.name not in ENDLESS]


@pytest.mark.parametrize("route", ROUTES, ids=route_id)
async def test_each_reply_is_documented(route: ApiRoute, storage: Storage, name: str) -> None:
    await examine(route, storage, name, 2, None)


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES, ids=route_id)
async def test_each_reply_is_documented_for_many_requests(route: ApiRoute, storage: Storage, name: str) -> None:
    """Sends 50 requests of each kind to each route, with another seed in each run.

    A run takes four to eight minutes. `test_unusual_headers_and_cursors_get_a_documented_reply` has what earlier runs
    have found.
    """
    start = random.randrange(2**32)
    print("seed", start)
    await examine(route, storage, name, 50, start)


async def examine(route: ApiRoute, storage: Storage, name: str, examples: int, start: int | None) -> None:
    """Send valid and invalid requests to a route: to names that are generated, and to things that exist."""
    async with Queue[Any, Any](name, storage) as queue, Ops(storage) as ops, serving(storage) as client:
        known = await fill(queue, ops)
        loop = asyncio.get_running_loop()

        def send(case: Any) -> Response:
            return asyncio.run_coroutine_threadsafe(sent(client, case), loop).result(60)

        await asyncio.to_thread(_examine, route, known, send, examples, start)


async def fill(queue: Queue[Any, Any], ops: Ops) -> dict[str, str]:
    """Add something of each kind, and return its names by the parts of paths."""
    job = await queue.add("x", {"n": 1}, key="k")
    await queue.revoke((await queue.add("x")).id)
    await queue.add("x", delay=60)
    await queue.upsert_job_scheduler("nightly", Schedule(cron="0 3 * * *"), name="x")
    preview = await ops.preview("retry", f"queue:{queue.name}")
    return {
        "queue": queue.name,
        "job": job.id,
        "key": "k",
        "schedule": "nightly",
        "signal": "go",
        "operation": preview.operation_id,
    }


def _examine(
    route: ApiRoute, known: dict[str, str], send: Callable[[Any], Response], examples: int, start: int | None
) -> None:
    operation = schema()[f"/{route.path.lstrip('/')}"][route.method]
    excluded = [schemathesis.checks.CHECKS.get_one(name) for name in OTHER_CHECKS]
    accepts = [schemathesis.checks.CHECKS.get_one("positive_data_acceptance")]
    rules = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=start is None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[*_EVERY_CHECK],
    )
    fixed = {part: known[part] for part in route.parameters if part in known}
    for mode, path in _kinds(fixed, is_thorough=start is not None):

        @rules
        @given(case=operation.as_strategy(generation_mode=mode, path_parameters=path))
        def check(case: Any) -> None:
            _shorten(case)
            reply = send(case)
            case.validate_response(reply, excluded_checks=[*excluded, *(accepts if _is_refused_value(reply) else ())])

        # Some requests have nothing that can be invalid. A valid one exists, or this would check nothing.
        is_valid = mode is schemathesis.GenerationMode.POSITIVE
        with nullcontext() if is_valid else suppress(Unsatisfiable):
            (check if start is None else seed(start)(check))()


def _kinds(fixed: dict[str, str], *, is_thorough: bool) -> Iterable[tuple[Any, dict[str, str] | None]]:
    """Return the kinds of requests: valid or not, and to which things."""
    valid, invalid = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
    if is_thorough and fixed:
        return (valid, fixed), (valid, None), (invalid, fixed), (invalid, None)
    return (valid, fixed or None), (invalid, None)


def _is_refused_value(reply: Response) -> bool:
    """Return whether a request was refused for what its values mean: a filter, a cursor, a large integer."""
    return reply.status_code in {400, 412, 422} and reply.json()["type"].rpartition(":")[2] in MEANINGS


def _shorten(case: Any) -> None:
    given: Any
    for given in (case.query, case.body):
        values = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        if isinstance(values.get("wait"), float | int) and values["wait"] > LONGEST_WAIT:
            values["wait"] = LONGEST_WAIT
        if given is case.body and isinstance(given, dict) and case.operation.path.endswith(":wait"):
            values.setdefault("wait", LONGEST_WAIT)


async def sent(client: AsyncClient, case: Any) -> Response:
    """Send a request as it was generated."""
    made: Any = requests.Request(**case.as_transport_kwargs(base_url=f"{LOCAL}/api/v1")).prepare()
    return await client.request(made.method, made.url, headers=dict(made.headers), content=made.body)
