"""The topics of a storage."""

from __future__ import annotations

from typing import Final

from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.storage import Storage
from glidemq_async.stored.names import QueueKeys

_KIND: Final = "topic_info"


async def list_topics(storage: Storage, *, prefix: str = DEFAULT_PREFIX) -> list[str]:
    """Return the names of the topics of a storage with this prefix, sorted.

    A topic exists from its first message on. The call compares the names of all keys of the server. Raises the errors
    of `list_queues`.
    """
    from glidemq_async.storage.redis.server import ServerStorage, find_keys

    if not isinstance(storage, ServerStorage):
        raise TypeError(f"list_topics needs a storage of glidemq_async.storage, got {storage!r}")
    pattern = QueueKeys.pattern(prefix).replace("{*}:meta", f"{{topic/*}}:{_KIND}")
    keys = await find_keys(storage, pattern)
    names = {key.decode(errors="replace").partition(":{topic/")[2].removesuffix(f"}}:{_KIND}") for key in keys}
    return sorted(name for name in names if "}" not in name)
