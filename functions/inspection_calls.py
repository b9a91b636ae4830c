"""Typed callers of the functions that look: reading.lua, searching.lua, metrics.lua."""

from __future__ import annotations

from glidemq_async.functions.calling import Caller


class InspectionCalls(Caller):
    """The part of `Functions` that these functions make up."""
