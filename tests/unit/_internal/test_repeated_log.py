"""Repeated log lines: the first is written, the others are counted."""

from __future__ import annotations

import logging

import pytest

from glidemq_async._internal.repeated_log import MAX_KEYS, RepeatedLog

LOGGER = logging.getLogger("glidemq_async.tests.repeated")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_repeated_message_is_written_once_a_period_with_its_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = RepeatedLog(LOGGER, period=60, clock=clock)
    for _ in range(1000):
        log.write("refused", "refused: %s", "NOPERM")
        clock.now += 0.05
    assert caplog.messages == ["refused: NOPERM"]
    log.write("other", "something else")
    clock.now = 61
    log.write("refused", "refused: %s", "NOPERM")
    assert caplog.messages[1:] == ["something else", "refused: NOPERM (and 999 more times in the last 61 s)"]
    clock.now = 122
    log.write("refused", "refused: %s", "NOPERM")
    assert caplog.messages[-1] == "refused: NOPERM"


def test_many_different_messages_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    log = RepeatedLog(LOGGER, level=logging.ERROR)
    for number in range(3 * MAX_KEYS):
        log.write(number, "message %d", number)
    log.write(0, "message %d", 0)
    log.write(3 * MAX_KEYS - 1, "message again")
    assert len(caplog.messages) == 3 * MAX_KEYS + 1
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
