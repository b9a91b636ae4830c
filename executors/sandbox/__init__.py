"""Enforces Permissions on a process with mechanisms of the kernel, which docs/permissions.md describes."""

from glidemq_async.executors.sandbox.applying import apply
from glidemq_async.executors.sandbox.denials import denied
from glidemq_async.executors.sandbox.environment import child_environment
from glidemq_async.executors.sandbox.limits import begin_job, is_worn
from glidemq_async.executors.sandbox.readable import look_for_code
from glidemq_async.executors.sandbox.supported import Support, support, unenforced

__all__ = [
    "Support",
    "apply",
    "begin_job",
    "child_environment",
    "denied",
    "is_worn",
    "look_for_code",
    "support",
    "unenforced",
]
