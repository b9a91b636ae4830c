"""Running jobs: the worker, its claim loop, its leases, and the pool that shares one shutdown."""

from glidemq_async._internal import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
