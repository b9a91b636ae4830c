"""Instrumentation: hooks are called around adds and runs, in order. An exception in a hook affects nothing else."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from glidemq_async.instrumentation import Addition, Instrumentation, Instruments, QueueDepth, WorkerPart, instruments_of
from glidemq_async.options.job_options import JobOptions, explicit
from glidemq_async.options.stored_options import read_options, stored_form


async def nothing() -> QueueDepth:
    return QueueDepth({}, None, 0)


PART = WorkerPart("w", "q", nothing, lambda: 0)


class Recording(Instrumentation):
    def __init__(self, name: str, calls: list[object]) -> None:
        self.name = name
        self.calls = calls

    def before_add(self, additions: Sequence[Addition]) -> object:
        self.calls.append(f"{self.name} before")
        return self.name

    def after_add(self, token: Any, additions: Sequence[Addition], error: BaseException | None) -> None:
        assert token == self.name
        self.calls.append(f"{self.name} after {error!r}")

    async def worker_started(self, worker: WorkerPart) -> None:
        self.calls.append(f"{self.name} started")

    async def worker_stopped(self, worker: WorkerPart) -> None:
        self.calls.append(f"{self.name} stopped")


class Broken(Instrumentation):
    def before_add(self, additions: Sequence[Addition]) -> object:
        raise RuntimeError("before")

    def after_add(self, token: Any, additions: Sequence[Addition], error: BaseException | None) -> None:
        raise RuntimeError("after")

    async def worker_started(self, worker: WorkerPart) -> None:
        raise OSError("the port is taken")

    async def worker_stopped(self, worker: WorkerPart) -> None:
        raise OSError("no")


def test_hooks_nest() -> None:
    calls: list[object] = []
    with pytest.raises(KeyError), Instruments([Recording("a", calls), Recording("b", calls)]).adding([]):
        raise KeyError(1)
    assert calls == ["a before", "b before", "b after KeyError(1)", "a after KeyError(1)"]


def test_a_failing_hook_is_logged_and_affects_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[object] = []
    with caplog.at_level(logging.ERROR), Instruments([Broken(), Recording("a", calls)]).adding([]):
        pass
    assert calls == ["a before", "a after None"]
    assert [record.getMessage() for record in caplog.records] == [
        "hook Broken.before_add raised an exception; telemetry is incomplete",
        "hook Broken.after_add raised an exception; telemetry is incomplete",
    ]


async def test_a_failed_start_stops_the_instrumentations_that_started(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[object] = []
    instruments = Instruments([Recording("a", calls), Broken(), Recording("b", calls)])
    with pytest.raises(OSError, match="the port is taken"):
        await instruments.start(PART)
    assert calls == ["a started", "a stopped"]
    with caplog.at_level(logging.ERROR):
        await instruments.stop(PART)
    assert calls[2:] == ["b stopped", "a stopped"]
    assert "Broken.worker_stopped raised" in caplog.text


@pytest.mark.parametrize("bad", [Instrumentation(), [object()], 5])
def test_an_object_that_is_not_an_instrumentation_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match="nstrumentation"):
        instruments_of(bad)
    assert not instruments_of(())


def test_options_with_other_headers_are_otherwise_the_same() -> None:
    options = JobOptions(attempts=3, key="k", headers={"a": "b"})
    changed = options.with_headers({"a": "b", "c": "d"})
    assert changed == JobOptions(attempts=3, key="k", headers={"a": "b", "c": "d"})
    assert explicit(changed) == {**explicit(options), "headers": {"a": "b", "c": "d"}}
    assert read_options(stored_form(changed)).headers == {"a": "b", "c": "d"}
    assert options.with_headers({"a": "b"}) is options
    assert explicit(JobOptions().with_headers({"x": "y"})) == {"headers": {"x": "y"}}
