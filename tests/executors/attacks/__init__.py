"""Attempts to escape from permissions, as plain functions of a target: what a hostile job could do.

Each returns something true when it got what it wanted, and else raises or returns something false. They aim at what the
test made for them (files, a victim process, servers on the loopback) and are bounded, so that they can be run without
any permissions too: that they work there is what makes "refused" mean something.
"""

from __future__ import annotations

from tests.executors.attacks import files, kernel, limits, network, processes
from tests.executors.attacks.registry import ATTACKS, Attack, Target

__all__ = ["ATTACKS", "Attack", "Target", "files", "kernel", "limits", "network", "processes"]
