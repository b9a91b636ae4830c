"""An asyncio job queue on Redis and Valkey Functions.

The names below are the public surface; see README.md for a first example and docs/internals/design.md for the design.
"""

from glidemq_async._internal import late, lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
late.provide("operations", "glidemq_async.ops.bulk.queue_core:open_core")
