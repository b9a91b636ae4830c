"""Escapes: each attempt succeeds without permissions and fails with them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.sandbox import child_environment, landlock

if sys.platform != "linux":
    pytest.skip("the sandbox is for Linux", allow_module_level=True)

from tests.executors.attacks import ATTACKS
from tests.executors.attacks.registry import SECRET

if TYPE_CHECKING:
    from tests.executors.attack_runner import AttackRunner

VERSION = landlock.version()

# On kernels before this version some limits are reported as missing; test_sandbox.py tests the rest there.
pytestmark = [
    pytest.mark.skipif(VERSION < 6, reason="Landlock here is older than these tests require"),
    pytest.mark.timeout(300),  # some attacks use seconds of processor time
]


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_no_attack_succeeds_in_the_sandbox(attacks: AttackRunner, name: str) -> None:
    attack = ATTACKS[name]
    free = attacks.run(name, nobody=attack.unprivileged)
    if not free.won:
        pytest.skip(f"the attempt fails here even without permissions: {free.error}")

    confined = attacks.run(name, attack.permissions, nobody=attack.unprivileged)

    assert not confined.won
    assert not confined.damage
    assert not confined.error.startswith("unexpected")
    assert confined.missing == []
    if confined.error.startswith("PermissionError"):
        assert confined.denied is not None
        assert confined.error in confined.denied


def test_secrets_of_the_environment_are_hidden() -> None:
    environ = {**os.environ, "DATABASE_PASSWORD": SECRET, "AWS_REGION": "eu", "AWS_KEY": "k", "HOME": "/home/ada"}
    look = "import os; print(open('/proc/self/environ').read(), dict(os.environ))"

    def found(chosen: dict[str, str]) -> str:
        command = [sys.executable, "-I", "-S", "-c", look]
        return subprocess.run(command, env=chosen, capture_output=True, text=True, check=True).stdout

    assert SECRET in found(environ)
    confined = found(child_environment(Permissions(environment=["AWS_*"]), environ))
    assert SECRET not in confined
    assert "AWS_KEY" in confined
    assert "/home/ada" not in confined
