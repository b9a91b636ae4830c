"""Typed callers of the functions that remove many jobs: cleaning.lua."""

from __future__ import annotations

from glidemq_async.functions.calling import Caller


class CleaningCalls(Caller):
    """The part of `Functions` that these functions make up."""
