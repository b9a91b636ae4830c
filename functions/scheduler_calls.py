"""Typed callers of the functions of job schedulers: schedulers.lua."""

from __future__ import annotations

from glidemq_async.functions.calling import Caller


class SchedulerCalls(Caller):
    """The part of `Functions` that these functions make up."""
