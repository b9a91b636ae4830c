"""A worker refuses a handler that certainly cannot take what its executor passes."""

from __future__ import annotations

from functools import partial, wraps
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from glidemq_async import BatchOptions, Worker
from glidemq_async.executors import InlineExecutor, SubprocessExecutor, ThreadExecutor


async def takes_nothing() -> None: ...


async def takes_two(first: object, second: object) -> None: ...


NOTHING: Any = takes_nothing
TWO: Any = takes_two


def plainly_takes_nothing() -> None: ...


async def takes_a_keyword(*, job: object) -> None: ...


class Handlers:
    async def missing_self(job: object) -> None: ...  # noqa: N805 # pyright: ignore[reportSelfClsParameterName, reportGeneralTypeIssues]

    async def good(self, job: object) -> None: ...


def takes_any(*_jobs: object) -> None: ...


def takes_more(_job: object, _other: int = 1) -> None: ...


class Own(InlineExecutor):
    """An executor that may pass other arguments."""


def injecting(handler: Any) -> Any:
    @wraps(handler)
    async def call(job: object) -> Any:
        return await handler(job, "injected")

    return call


@pytest.mark.parametrize(
    ("handler", "executor"),
    [
        (takes_nothing, None),
        (takes_two, "inline"),
        (takes_a_keyword, InlineExecutor()),
        (plainly_takes_nothing, None),
        (plainly_takes_nothing, ThreadExecutor(1)),
        (plainly_takes_nothing, "subprocess"),
        (takes_nothing, SubprocessExecutor(1)),
        (Handlers().missing_self, None),
        (partial(takes_two, 1, 2), None),
    ],
)
def test_a_handler_that_cannot_take_a_job_is_refused(handler: Any, executor: Any) -> None:
    with pytest.raises(
        TypeError,
        match=r"\(.*\) cannot be a handler: the worker calls it with a job .*declare it with one parameter, `job: Job`",
    ):
        Worker("q", handler, "memory://", executor=executor)


def test_a_batch_handler_takes_a_list() -> None:
    with pytest.raises(TypeError, match="calls it with a list of jobs"):
        Worker("q", NOTHING, "memory://", batch=BatchOptions(size=2, wait=1))


@pytest.mark.parametrize(
    "handler",
    [
        print, str, partial(takes_two, 1), takes_any, takes_more, Handlers().good, Mock(),
        AsyncMock(), injecting(takes_two),
    ],
)  # fmt: skip
def test_a_handler_that_may_take_a_job_is_accepted(handler: Any) -> None:
    Worker("q", handler, "memory://")


def test_an_executor_of_the_user_decides_what_it_passes() -> None:
    Worker("q", TWO, "memory://", executor=Own())
