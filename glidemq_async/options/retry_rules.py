"""Rules that decide by exception type if a failed run is retried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, cast, runtime_checkable

from glidemq_async.errors import ExecutorError, UnknownTaskError

ErrorTypes: TypeAlias = "type[BaseException] | Sequence[type[BaseException]]"
"""One exception type, or several."""

_MAIN_TWIN: Final = "__mp_main__"


@dataclass(frozen=True, slots=True)
class RetryRules:
    """The rules for a run that raised while attempts are left."""

    retry_on: tuple[type[BaseException], ...] | None = None
    """Only these types are retried; None means every type."""
    give_up_on: tuple[type[BaseException], ...] = ()
    """These types fail the job permanently, even if `retry_on` includes them."""

    @classmethod
    def checked(cls, retry_on: ErrorTypes | None, give_up_on: ErrorTypes | None) -> RetryRules | None:
        """Validate and return the rules, None if neither is given. Raises TypeError unless all are exception types."""
        if retry_on is None and give_up_on is None:
            return None
        return cls(
            None if retry_on is None else _types("retry_on", retry_on),
            () if give_up_on is None else _types("give_up_on", give_up_on),
        )

    def ends(self, error: BaseException) -> bool:
        """Return whether the job fails without another attempt.

        An exception group is retried only if every exception in it is retried. Failures of the environment
        (ExecutorError, UnknownTaskError) are retried unless `give_up_on` includes them.
        """
        # First, because the user has named this type. An environment failure is retried by default, but a user who
        # names ExecutorError in `give_up_on` means it.
        if matches(error, self.give_up_on):
            return True
        if isinstance(error, ExecutorError | UnknownTaskError):
            return False
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            return any(self.ends(one) for one in group.exceptions) and not self._named(group)
        return self.retry_on is not None and not matches(error, self.retry_on)

    def _named(self, error: BaseException) -> bool:
        return self.retry_on is not None and matches(error, self.retry_on)


@runtime_checkable
class HasRetryRules(Protocol):
    """An optional part of an executor: rules for jobs of one name, which replace the rules of its worker."""

    def retry_rules(self, job_name: str) -> RetryRules | None:
        """Return the rules for jobs of this name, None if there are none."""
        ...


def lineage_of(kind: type[BaseException]) -> list[str]:
    """Return the names of a class and its bases in the form that other processes compare."""
    return [_name_of(base) for base in kind.__mro__]


def matches(error: BaseException, types: tuple[type[BaseException], ...]) -> bool:
    """Return whether an exception is an instance of one of these types, even if it was raised in another process."""
    if isinstance(error, types):
        return True
    # An exception of a child process may be of a type that this process cannot import. Then the names of its types are
    # compared.
    lineage: object = getattr(error, "remote_lineage", None)
    return isinstance(lineage, frozenset) and any(_name_of(kind) in lineage for kind in types)


def _name_of(kind: type) -> str:
    # The main script has a different module name in child processes.
    module = "__main__" if kind.__module__ == _MAIN_TWIN else kind.__module__
    return f"{module}:{kind.__qualname__}"


def _types(name: str, given: ErrorTypes) -> tuple[type[BaseException], ...]:
    return tuple(_checked_types(name, given))


def _checked_types(name: str, given: object) -> Iterator[type[BaseException]]:
    several: Iterable[object] = (given,)
    if isinstance(given, tuple | list | set | frozenset):
        several = cast("Iterable[object]", given)
    for kind in several:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{name} must be an exception type or a tuple of them, got {kind!r}")
        yield kind
