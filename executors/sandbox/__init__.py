"""Enforcing Permissions on a process with what the kernel offers; docs/permissions.md says what that is."""

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
