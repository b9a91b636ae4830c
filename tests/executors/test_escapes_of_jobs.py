"""The same attempts to escape, by jobs in the processes of the subprocess executor."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from glidemq_async import Job, JobFailed, Queue, Worker
from glidemq_async.executors import Permissions
from glidemq_async.executors.sandbox import landlock

if sys.platform != "linux":
    pytest.skip("the sandbox is for Linux", allow_module_level=True)
if find_spec("glidemq_async.executors.subprocess") is None:
    pytest.skip("the subprocess executor is not here", allow_module_level=True)

from tests.executors.attacks import ATTACKS, Target

if TYPE_CHECKING:
    from tests.executors.attack_runner import AttackRunner

pytestmark = pytest.mark.skipif(landlock.version() < 6, reason="Landlock here is older than these tests require")


def attacking(job: Job[dict[str, Any], bool]) -> bool:
    """Run the attack in the process of the job."""
    return bool(ATTACKS[job.data["attack"]].function(Target(**job.data["target"])))


def reading(job: Job[str, bool]) -> bool:
    with open(job.data, encoding="utf-8") as file:
        return bool(file.read())


async def _won(job: Job[dict[str, Any], bool]) -> bool:
    try:
        return await job.result(timeout=50)
    except JobFailed:
        return False


def _executor(permissions: Permissions) -> Any:
    return import_module("glidemq_async.executors.subprocess").SubprocessExecutor(1, permissions=permissions, grace=0.2)


@pytest.mark.parametrize("name", sorted(name for name, each in ATTACKS.items() if not each.unprivileged))
@pytest.mark.slow
async def test_no_job_escapes(attacks: AttackRunner, name: str) -> None:
    target = attacks.prepare()
    leaked = os.open(target.secret, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    ours, theirs = os.openpty()
    try:
        asked = dict(ATTACKS[name].permissions)
        if asked.get("network") == ["granted"]:
            asked["network"] = [target.granted_tcp]
        granted: dict[str, Any] = {"read": [target.readable], "write": [target.work], **asked}
        permissions = Permissions(**granted)
        target = replace(target, leaked=leaked, terminal=theirs)
        async with (
            Queue[dict[str, Any], bool]("escapes", "memory://") as queue,
            Worker("escapes", attacking, queue.storage, concurrency=1, executor=_executor(permissions)),
        ):
            job = await queue.add("attack", {"attack": name, "target": asdict(target)})
            assert not await _won(job)
    finally:
        for descriptor in (leaked, ours, theirs):
            os.close(descriptor)
        assert not attacks.damage()


async def test_a_refused_job_fails_with_the_missing_permission(attacks: AttackRunner) -> None:
    target = attacks.prepare()
    async with (
        Queue[str, bool]("refused", "memory://") as queue,
        Worker("refused", reading, queue.storage, executor=_executor(Permissions(read=[target.readable]))),
    ):
        granted = await queue.add("read", target.readable)
        refused = await queue.add("read", target.secret)
        assert await granted.result(timeout=20)
        with pytest.raises(JobFailed) as failure:
            await refused.result(timeout=20)
    assert failure.value.error_type.endswith("PermissionDenied")
    assert f"grant Permissions(read=['{target.secret}'])" in failure.value.message
    assert not attacks.damage()
