"""Payload codecs: they transform encoded data, results and progress before sending, and reverse that on reading.

See docs/serialization.md.
"""

from glidemq_async._internal import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
