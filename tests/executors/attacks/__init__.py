"""Attempts to escape from permissions, as plain functions of a target: the possible actions of a hostile job.

Each one returns something true when it succeeded, and otherwise raises or returns something false. They attack only
objects of the test (files, a victim process, servers on the loopback) and are bounded. So they can also run without
any permissions. Their success there gives "refused" its meaning.
"""

from __future__ import annotations

from tests.executors.attacks import files, kernel, limits, network, processes
from tests.executors.attacks.registry import ATTACKS, Attack, Target

__all__ = ["ATTACKS", "Attack", "Target", "files", "kernel", "limits", "network", "processes"]
