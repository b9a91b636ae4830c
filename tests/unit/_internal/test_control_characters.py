"""Control characters of terminals are never printed: in texts, in JSON, and in log lines."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from glidemq_async._internal.control_characters import escape, escape_json
from glidemq_async.cli.worker.logs import TextFormatter
from glidemq_async.telemetry import JsonFormatter

STEERING = "\x00\x1b]0;owned\x07\x9b31m\x7f\x85\u202e\u2066\u2028\ud800"


def test_control_characters_in_a_text_are_escaped() -> None:
    assert escape("a\x1b[2J\x9b\u202e") == r"a\x1b[2J\x9b\u202e"
    assert escape("tea, café, 茶, 🍵") == "tea, café, 茶, 🍵"
    assert escape("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"


def test_a_json_document_stays_the_same_value() -> None:
    value = {STEERING: [STEERING, "café 🍵"]}
    for indent in (None, 2):
        found = escape_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert json.loads(found) == value
        assert found.replace("\n", "").isprintable()


@pytest.mark.parametrize("formatter", [TextFormatter(None), JsonFormatter()])
def test_a_log_line_contains_no_control_characters(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(STEERING)
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, __file__, 1, "job %s failed", (STEERING,), sys.exc_info())
    line = formatter.format(record)
    assert "owned" in line
    assert "Traceback" in line
    assert line.replace("\n", "").isprintable()
