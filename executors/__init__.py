"""How a claimed job is run: the executor protocol and its tiers."""

from glidemq_async._internal import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
