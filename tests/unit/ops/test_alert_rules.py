"""Conditions, addresses and signatures of alerts: what is read, and what is refused before anything is stored."""

from __future__ import annotations

import time
from typing import Any

import pytest

from glidemq_async.ops import SignatureInvalid, WebhookRefused, verify_webhook
from glidemq_async.ops.alerts import webhooks
from glidemq_async.ops.alerts.conditions import parse_condition
from glidemq_async.ops.alerts.rules import check_format, check_queues, check_rule_name, check_webhooks
from glidemq_async.ops.alerts.webhooks import (
    check_secret,
    check_url,
    masked,
    new_secret,
    permitted_hosts,
    signed_headers,
)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("oldest_age > 60s for 5m", "oldest_age > 1m for 5m"),
        ("  Oldest age>=90s", "oldest_age >= 90s for 1m"),
        ("failure_share > 10% for 0s", "failure_share > 10% for 0s"),
        ("failure share > 0.125", "failure_share > 12.5% for 1m"),
        ("failures >= 1000000", "failures >= 1000000 for 1m"),
        ("no worker for 2h", "no_worker for 2h"),
        ("new failure group", "new_failure_group"),
        ("schedule late", "schedule_late > 10s for 1m"),
        ("workers < 2 for 1d", "workers < 2 for 1d"),
        ("memory > 80%", "memory > 80% for 1m"),
        ("memory >= 1.5GB for 90s", "memory >= 1500MB for 90s"),
    ],
)
def test_a_condition_is_read_and_written(text: str, read: str) -> None:
    assert str(parse_condition(text)) == read
    assert parse_condition(read) == parse_condition(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("oldest_age > 60s for", "cannot be read"),
        ("oldest_age = 60s", "cannot be read"),
        ("oldest_agge > 60s", "did you mean 'oldest_age'"),
        ("no_workers", "did you mean 'no_worker'"),
        ("qqqq > 1", "the measures are oldest_age"),
        ("oldest_age", "needs a limit, for example 'oldest_age > 60s'"),
        ("oldest_age > 60", "'60' is no duration"),
        ("oldest_age > 60s for ever", "'ever' is no duration"),
        ("no_worker > 1", "write 'no_worker' alone"),
        ("new_failure_group for 5m", "remove 'for 5m'"),
        ("failure_share > 110%", "more than the whole"),
        ("failure_share > x", "is no share"),
        ("waiting > 1.5", "is no whole number"),
        ("memory > 80", "no share and no size"),
    ],
)
def test_a_bad_condition_is_refused_with_a_remedy(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        parse_condition(text)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("htps://example.com", "did you mean 'https'"),
        ("ftp://example.com", "use https:// or http://"),
        ("example.com/x", "the scheme ''"),
        ("https:///x", "names no host"),
        ("https://ada:secret@example.com", "user or a password"),
        ("https://example.com:99999/", "cannot be read"),
        ("https://example.com/a b", "without spaces"),
        ("https://example.com/" + "x" * 2_000, "at most 2000 characters"),
    ],
)
def test_a_bad_address_is_refused(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_url(url)


def test_other_bad_parts_of_a_rule_are_refused() -> None:
    memory = parse_condition("memory > 80%")
    wrong: list[tuple[Any, tuple[Any, ...], str]] = [
        (check_rule_name, ("x" * 101,), "at most 100"),
        (check_rule_name, ("a\nb",), "control character"),
        (check_format, ("jsn",), "did you mean 'json'"),
        (check_queues, (["mail"], memory), "leave out the queues"),
        (check_webhooks, ("https://example.com", None), "a list of URLs"),
        (check_webhooks, ([f"https://example.com/{n}" for n in range(6)], None), "at most 5"),
        (check_secret, ("whsec_c2hvcnQ=",), "24 to 64 bytes"),
        (check_secret, ("secret",), "whsec_"),
    ]
    for check, given, message in wrong:
        with pytest.raises((ValueError, TypeError), match=message):
            check(*given)


def test_only_permitted_hosts_receive_webhooks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert permitted_hosts() is None
    monkeypatch.setenv("GLIDEMQ_WEBHOOK_HOSTS", "hooks.slack.com, *.example.com")
    hosts = permitted_hosts()
    assert check_url("https://a.Example.com/x", hosts)
    with pytest.raises(WebhookRefused, match=r"evil\.com are not permitted here.*hooks\.slack\.com"):
        check_url("https://evil.com/example.com", hosts)
    assert permitted_hosts(["*"]) == ("*",)
    with pytest.raises(TypeError, match="list of patterns"):
        permitted_hosts("example.com")
    assert masked("https://hooks.slack.com/services/T/B/x") == "https://hooks.slack.com/…"
    assert masked("https://example.com") == "https://example.com"


async def test_an_address_of_the_local_link_gets_no_webhook() -> None:
    with pytest.raises(WebhookRefused, match="local link"):
        await webhooks.send("http://169.254.169.254/latest", new_secret(), "m", b"{}", None)


def test_a_signature_fits_only_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    secret, body = new_secret(), b'{"type":"alert.opened"}'
    headers = signed_headers(secret, "e1.opened", body)
    assert verify_webhook(secret, {name.title(): value for name, value in headers.items()}, body) == "e1.opened"
    rotated = {**headers, "webhook-signature": "v1,AAAA " + headers["webhook-signature"]}
    assert verify_webhook(secret, rotated, body) == "e1.opened"
    for changed in (
        {**headers, "webhook-id": "e2.opened"},
        {**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)},
        {**headers, "webhook-timestamp": "x"},
        {**headers, "webhook-signature": ""},
        {},
    ):
        with pytest.raises(SignatureInvalid):
            verify_webhook(secret, changed, body)
    for wrong in ((new_secret(), body), (secret, body + b" ")):
        with pytest.raises(SignatureInvalid, match="does not fit"):
            verify_webhook(wrong[0], headers, wrong[1])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 301)
    with pytest.raises(SignatureInvalid, match="signed 30"):
        verify_webhook(secret, headers, body)
    assert verify_webhook(secret, headers, body, tolerance=600) == "e1.opened"


def test_a_signature_is_the_one_of_the_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    # The example of the specification of Standard Webhooks.
    monkeypatch.setattr(time, "time", lambda: 1614265330.0)
    headers = signed_headers(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}'
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    ("condition", "one", "two"),
    [
        ("waiting > 0", "1 job of mail waits", "2 jobs of mail wait"),
        ("failures > 0", "1 job of mail failed in the last hour", "2 jobs of mail failed in the last hour"),
        ("workers < 3", "mail has 1 worker", "mail has 2 workers"),
    ],
)
def test_a_figure_of_one_is_described_in_the_singular(condition: str, one: str, two: str) -> None:
    parsed = parse_condition(condition)
    assert [parsed.describe("mail", figure) for figure in (1.0, 2.0)] == [one, two]
