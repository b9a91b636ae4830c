"""Payload codecs: what is done to encoded data, results and progress before they are sent, and undone when read.

See docs/serialization.md.
"""

from glidemq_async._internal import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
