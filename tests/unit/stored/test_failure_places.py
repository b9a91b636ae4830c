"""The place of an exception is the innermost frame of the user's code, the same for each deploy."""

from __future__ import annotations

import sys
from types import CodeType

import pytest

from glidemq_async.errors import GlideMQError
from glidemq_async.stored.failure import Failure, failure_of
from glidemq_async.stored.failure_places import LONGEST_PLACE, place_of


def raised_in(file: str, module: str, text: str = "raise ValueError('x')") -> BaseException:
    """Raise an error in code of this file and module, and return it."""
    code: CodeType = compile(text, file, "exec")
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any error of the text
        exec(code, {"__name__": module, "__file__": file})
    caught.value.__traceback__ = caught.value.__traceback__ and caught.value.__traceback__.tb_next
    return caught.value


@pytest.mark.parametrize(
    ("file", "module", "place"),
    [
        ("/srv/42/app/mail.py", "app.mail", "app/mail.py:<module>:1"),
        ("/srv/42/lib/app/mail.py", "app.mail", "app/mail.py:<module>:1"),
        ("/opt/other/app/mail.py", "app.mail", "app/mail.py:<module>:1"),
        ("/srv/42/lib/python3.11/site-packages/x/y.py", "x.y", ""),
        ("/usr/lib/python3/dist-packages/x/y.py", "x.y", ""),
        ("/usr/lib/python3.11/json/decoder.py", "json.decoder", ""),
        ("/srv/42/glidemq_async/jobs/job.py", "glidemq_async.jobs.job", ""),
    ],
)
def test_places(monkeypatch: pytest.MonkeyPatch, file: str, module: str, place: str) -> None:
    monkeypatch.setattr(sys, "path", ["", "/srv/42", "/srv/42/lib/"])
    assert place_of(raised_in(file, module)) == place


def test_an_error_without_a_place_has_that_of_its_cause() -> None:
    error = GlideMQError("x")
    error.__cause__ = raised_in("/srv/app.py", "app")
    assert place_of(error) == "srv/app.py:<module>:1"
    again = GlideMQError("y")
    again.__context__ = error
    assert place_of(again) == "srv/app.py:<module>:1"
    again.__suppress_context__ = True
    assert place_of(again) == ""


def test_a_long_place_keeps_its_end() -> None:
    place = place_of(raised_in(f"/{'a' * 300}/b.py", "b"))
    assert (len(place), place[-14:]) == (LONGEST_PLACE, "b.py:<module>:1"[-14:])


def test_the_fingerprint_ignores_the_line_and_the_message() -> None:
    first = Failure("ValueError", "no 1", "", "app.py:send:41")
    assert first.fingerprint("send") == Failure("ValueError", "no 2", "other", "app.py:send:99").fingerprint("send")
    others = [
        first.fingerprint("mail"),
        first._replace(error_type="KeyError").fingerprint("send"),
        first._replace(place="app.py:mail:41").fingerprint("send"),
        first._replace(place="").fingerprint("send"),
    ]
    assert len({first.fingerprint("send"), *others}) == 5


def test_an_error_is_described_with_its_place() -> None:
    error = raised_in("/srv/app.py", "app")
    assert failure_of(error).place == "srv/app.py:<module>:1"
