"""Where jobs live: one protocol, and storages for a server, a cluster, Sentinel and the embedded server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cluster import ClusterStorage
    from .connections import Endpoint
    from .file import FileStorage
    from .memory import MemoryStorage
    from .protocol import Arg, FunctionError, Storage, StreamEntry, Subscription, Wait
    from .redis import RedisStorage
    from .sentinel import SentinelStorage
    from .urls import open_storage
else:
    from glidemq_async import lazy

    __getattr__, __dir__ = lazy.attributes(
        __name__,
        {
            ".cluster": "ClusterStorage",
            ".connections": "Endpoint",
            ".file": "FileStorage",
            ".memory": "MemoryStorage",
            ".protocol": "Arg FunctionError Storage StreamEntry Subscription Wait",
            ".redis": "RedisStorage",
            ".sentinel": "SentinelStorage",
            ".urls": "open_storage",
        },
    )

__all__ = [
    "Arg",
    "ClusterStorage",
    "Endpoint",
    "FileStorage",
    "FunctionError",
    "MemoryStorage",
    "RedisStorage",
    "SentinelStorage",
    "Storage",
    "StreamEntry",
    "Subscription",
    "Wait",
    "open_storage",
]
