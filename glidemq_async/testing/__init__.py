"""Tools for tests of code that uses queues: a private server, a clock that the test moves, and jobs that the test runs.

Start with `Harness`. pytest provides the fixtures `glidemq`, `glidemq_clock` and `glidemq_storage` without an import.
See docs/testing.md for an example.
"""

from glidemq_async.testing.clock import MovableClock
from glidemq_async.testing.harness import Harness
from glidemq_async.testing.run_checks import check_runs

__all__ = ["Harness", "MovableClock", "check_runs"]
