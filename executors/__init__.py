"""How a claimed job is run: the executor protocol and its tiers."""

from glidemq_async.executors.inline import InlineExecutor
from glidemq_async.executors.protocol import Executor, Handler
from glidemq_async.executors.thread import ThreadExecutor

__all__ = ["Executor", "Handler", "InlineExecutor", "ThreadExecutor"]
