"""Typed tasks: an app of functions whose calls are added as jobs."""

from glidemq_async._internal import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
