"""Starts the attack process, and lets it run attacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.sandbox import child_environment
from tests.executors.attacks.registry import SECRET, Target

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """The result of an attack: whether it succeeded, or changed a protected object."""

    won: bool
    damage: bool
    error: str
    denied: str | None
    missing: list[str]
    status: int


class AttackRunner:
    """The process that runs attacks."""

    def __init__(self) -> None:
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        environment = {**child_environment(Permissions(), os.environ), "GLIDEMQ_SECRET": SECRET}
        return subprocess.Popen(
            [sys.executable, "-m", "tests.executors.attack_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def run(
        self,
        attack: str,
        permissions: dict[str, Any] | None = None,
        *,
        nobody: bool = False,
        landlock: int | None = None,
        namespaces: bool = True,
    ) -> Outcome:
        request = {
            "attack": attack,
            "permissions": permissions,
            "nobody": nobody,
            "landlock": landlock,
            "namespaces": namespaces,
        }
        return Outcome(**self._ask(request))

    def prepare(self) -> Target:
        """Create a target that another process attacks; `damage` removes it."""
        return Target(**self._ask({"attack": "prepare"}))

    def damage(self) -> bool:
        """Return whether a protected part of the target was changed."""
        return bool(self._ask({"attack": "damage"})["damage"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:  # the next test gets another process
            self.close()
            self._process = self._start()
            raise AssertionError("the process that runs attacks has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)
