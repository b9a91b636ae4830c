"""Typed callers of the functions of dead letters: dead_letters.lua."""

from __future__ import annotations

from glidemq_async.functions.calling import Caller


class DeadLetterCalls(Caller):
    """The part of `Functions` that these functions make up."""
