"""A filter that selects jobs."""

from __future__ import annotations

from glidemq_async.filters.fields import compiled
from glidemq_async.filters.grammar import Term, parse


class Filter:
    """A filter of jobs, such as `state:failed name:resize error:"TimeoutError" added:>1h`.

    A job matches if it meets all terms. docs/finding.md describes them. `Queue.find` takes a text or a Filter. Make a
    Filter to check a text before it is used. Two filters with the same terms are equal.

    Raises FilterError with the position of the mistake, and TypeError for anything but a text.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a filter is a text, not {text!r}")
        self._terms = parse(text)
        for term in self._terms:
            compiled(term)

    @classmethod
    def of_queue(cls, queue: str, wanted: str | Filter) -> Filter:
        """Return a filter for the jobs of one queue that match another filter."""
        quoted = queue.replace("\\", "\\\\").replace('"', '\\"')
        return cls(f'queue:"{quoted}" {wanted}')

    @property
    def terms(self) -> tuple[Term, ...]:
        """The conditions, in the order of the text."""
        return self._terms

    def __str__(self) -> str:
        return " ".join(map(str, self._terms))

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))
