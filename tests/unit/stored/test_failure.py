"""The description of an exception keeps every part that can be formatted."""

from __future__ import annotations

import pytest

from glidemq_async.stored.failure import failure_of


class Noted(Exception):
    """An exception with a valid text, whose notes prevent the formatting of its traceback."""

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        raise RuntimeError("no notes")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_the_message_survives_a_traceback_that_cannot_be_formatted() -> None:
    found = failure_of(raised(Noted("the disk is full")))
    assert (found.error_type, found.message) == ("Noted", "the disk is full")


def test_an_exception_without_text_is_described_by_its_type() -> None:
    found = failure_of(raised(Mute()))
    assert (found.error_type, found.message) == ("Mute", "")


def test_a_traceback_names_the_line() -> None:
    assert "raise error" in failure_of(raised(ValueError("x"))).traceback
