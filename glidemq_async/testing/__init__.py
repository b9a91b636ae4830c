"""Testing what uses the queue: a server of the test's own, a clock that the test moves, and jobs run by the test.

`Harness` is the start; with pytest the fixtures `glidemq`, `glidemq_clock` and `glidemq_storage` are there without an
import. docs/testing.md shows a test.
"""

from glidemq_async.testing.clock import MovableClock
from glidemq_async.testing.harness import Harness

__all__ = ["Harness", "MovableClock"]
