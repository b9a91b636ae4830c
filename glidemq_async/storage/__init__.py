"""The storages of jobs: one protocol, and storages for a server, a cluster, Sentinel and the embedded server."""

from glidemq_async._internal import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
