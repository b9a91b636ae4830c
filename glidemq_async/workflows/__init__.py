"""Recorded values and waits for the functions of workflows: the time, random numbers, ids, sleep.

See docs/workflows.md. `@mq.workflow` and `@mq.step` declare workflows and their steps.
"""

from glidemq_async._internal import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
