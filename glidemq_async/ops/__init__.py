"""Operations: see the queues of a prefix, and change many jobs at once. The command line and other faces use it."""

from glidemq_async._internal import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
