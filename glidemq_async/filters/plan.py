"""The plan of a search with a filter: the places that it reads, and the jobs that it selects."""

from __future__ import annotations

from collections.abc import Sequence

from glidemq_async.filters.fields import AnyJob, Present, Test, compiled, field_of
from glidemq_async.filters.filter import Filter
from glidemq_async.filters.grammar import Term
from glidemq_async.filters.values import text_test
from glidemq_async.stored.record import STATES, State


class FilterPlan:
    """The compiled terms of a filter, and the states, queues and ids that matching jobs can have."""

    def __init__(self, wanted: Filter) -> None:
        # Payloads are read only for the jobs that meet all other terms.
        self._small: list[Test] = []
        self._large: list[Test] = []
        for term in wanted.terms:
            (self._large if field_of(term).payload else self._small).append(compiled(term))
        self._queues = [(text_test(term), term.negated) for term in wanted.terms if term.field == "queue"]
        self.states = _states(wanted)
        """The states in which jobs can match."""
        self.names_states = any(term.field == "state" for term in wanted.terms)
        """True if a term is about the state."""
        self.reads_payloads = bool(self._large)
        """True if a term needs the data or the result of a job."""
        self.has_small_terms = bool(self._small)
        """True if a term needs no payload."""
        self.only_id = _only(wanted, "id")
        """The id that a matching job must have, None if several ids can match."""
        self.only_queue = _only(wanted, "queue")
        """The queue that a matching job must be in, None if there can be several."""
        self.only_name = _only(wanted, "name")
        """The name that a matching job must have, None if several names can match."""

    def may_be_in(self, queue: str) -> bool:
        """Return whether a job of this queue can match."""
        return all(test(queue) != negated for test, negated in self._queues)

    def fits(self, job: AnyJob, present: Present) -> bool:
        """Return whether a job without payloads meets the terms that need none."""
        return all(test(job, present) for test in self._small)

    def matches(self, job: AnyJob, present: Present) -> bool:
        """Return whether a job meets all terms."""
        return self.fits(job, present) and all(test(job, present) for test in self._large)


def _states(wanted: Filter) -> tuple[State, ...]:
    found: Sequence[State] = STATES
    for term in wanted.terms:
        if term.field == "state":
            named = {value.text for value in term.values}
            found = [state for state in found if (state in named) != term.negated]
    return tuple(found)


def _only(wanted: Filter, field: str) -> str | None:
    for term in wanted.terms:
        if term.field == field and not term.negated and (text := _single(term)) is not None:
            return text
    return None


def _single(term: Term) -> str | None:
    if len(term.values) != 1:
        return None
    [value] = term.values
    return value.text if value.quoted or "*" not in value.text else None
