"""The web face of the operations core: an HTTP API and pages, as one ASGI app. Needs the extra `ui`."""

from glidemq_async._internal import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
