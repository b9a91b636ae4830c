"""Typed calls of the functions for the dead-letter queue of a queue: `dead_letters.lua`."""

from __future__ import annotations

from glidemq_async.functions.calling import Calls, text


class DeadLetterCalls(Calls):
    """Calls of the functions in `dead_letters.lua`."""

    __slots__ = ()

    async def set_queue(self, name: str) -> None:
        """Set the queue that receives copies of dead letters; "": none."""
        # Without a number: the call stores a state, and each worker that starts with this setting stores it again.
        await self._caller.call("setDeadLetter", [name])

    async def get_queue(self) -> str:
        """Return the queue that receives copies of dead letters, "" for none."""
        return text(await self._caller.read("getDeadLetter"))
