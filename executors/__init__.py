"""Executors run the handlers of claimed jobs: the executor protocol and its implementations."""

from glidemq_async._internal import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
