"""Typed callers of the functions of limits: limits.lua, keyed.lua."""

from __future__ import annotations

from glidemq_async.functions.calling import Caller


class LimitCalls(Caller):
    """The part of `Functions` that these functions make up."""
