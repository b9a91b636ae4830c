"""Typed call of `notices.lua`: a notice wakes the process of an idle worker before its job is added."""

from __future__ import annotations

from glidemq_async.functions.calling import Caller, Calls, PromptStore


class NoticeCalls(Calls):
    """The call of the function in `notices.lua`."""

    __slots__ = ("_store",)

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller)
        self._store = caller.storage if isinstance(caller.storage, PromptStore) else None

    def give(self) -> None:
        """Wake the process of the idle worker that would get the next job, if the connection has been silent.

        Never waits and never raises. A notice that is lost or refused costs only the time that it would have saved.
        """
        if self._store is not None:
            self._store.call_after_silence("giveNotice", self._caller.base)
