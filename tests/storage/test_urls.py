"""URLs: every form, refusals, and the parts that are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from glidemq_async.storage import (
    ClusterStorage,
    FileStorage,
    MemoryStorage,
    RedisStorage,
    SentinelStorage,
    open_storage,
)
from glidemq_async.storage.urls import default_url, masked


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory://", MemoryStorage),
        ("memory://name", MemoryStorage),
        ("file:///a/dir", FileStorage),
        ("file:///a/dir?linger=2.5", FileStorage),
        ("redis://", RedisStorage),
        ("redis://host", RedisStorage),
        ("redis://user:pw@host:1234/3", RedisStorage),
        ("redis://[::1]:1234?db=2", RedisStorage),
        ("rediss://host:1?ssl_cert_reqs=none&ssl_check_hostname=false", RedisStorage),
        ("valkey://host:1", RedisStorage),
        ("valkeys://host:1", RedisStorage),
        ("unix:///a/socket?db=1", RedisStorage),
        ("valkey+unix://user:pw@/a/socket", RedisStorage),
        ("redis+cluster://a:1,b:2,c", ClusterStorage),
        ("valkey+cluster://a", ClusterStorage),
        ("rediss+cluster://u:p@a:1,b:2", ClusterStorage),
        ("redis+sentinel://a:1,b/main", SentinelStorage),
        ("valkey+sentinel://u:p@a:1,b:2/main/3?sentinel_password=s", SentinelStorage),
    ],
)
def test_every_form_of_url_opens(url: str, kind: type[object]) -> None:
    assert type(open_storage(url)) is kind


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("localhost:6379", "no scheme, such as redis://"),
        ("redis:/localhost", "no scheme, such as redis://"),
        ("http://host", "'http' is unknown"),
        ("redis+magic://host", "unknown"),
        ("http+cluster://host", "unknown"),
        ("redis://host:port", "[Pp]ort"),
        ("redis://host/abc", "db must be a number"),
        ("redis://a,b", "cluster or"),
        ("redis://host?retries=3", "'retries' is unknown"),
        ("redis://host?ssl_ca_certs=x", "needs rediss"),
        ("rediss://host?ssl_magic=x", "'ssl_magic' is unknown"),
        ("redis://host#x", "%23"),
        ("redis+cluster://a:1/2", "only database 0"),
        ("redis+sentinel://a:1", "service"),
        ("unix://host/path", "absolute path"),
        ("unix://", "absolute path"),
        ("file://relative/dir", "file:///relative/dir"),
        ("file:///", "directory"),
        ("file:///a?linger=soon", "linger must be seconds"),
        ("memory://a/b", "name, not a path"),
        ("", "no scheme|known form|no storage"),
    ],
)
def test_a_wrong_url_is_refused_with_the_known_forms(url: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        open_storage(url)
    assert "redis+sentinel://" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:secret@host",
        "redis://:secret@host",
        "redis://host?password=secret",
        "rediss+cluster://user:secret@a,b",
        "redis+sentinel://user:secret@a/main?sentinel_password=secret",
        "unix://user:secret@/socket",
    ],
)
def test_passwords_are_never_shown(url: str) -> None:
    storage = open_storage(url)
    assert "secret" not in storage.url
    assert "secret" not in repr(storage.__dict__)
    assert "***" in storage.url
    with pytest.raises(ValueError, match="magic") as caught:
        open_storage(url + ("&" if "?" in url else "?") + "magic=1")
    assert "secret" not in str(caught.value)


FORMS_WITH_LOGIN = (
    "redis://user:{}@host:1/0",
    "rediss://:{}@host",
    "redis+cluster://user:{}@a:1,b:2",
    "redis+sentinel://user:{}@a:1/main",
    "unix://user:{}@/socket",
    "file://user:{}@host/directory",
    "user:{}@host:1",
    "redis:/user:{}@host:1",
)


@pytest.mark.parametrize("sign", [*"/?#@:[]%&= \u2100", "/b@c", "?x=y&z=", "#x?y/z"])
@pytest.mark.parametrize("form", FORMS_WITH_LOGIN)
def test_no_part_of_a_password_without_encoding_is_shown(form: str, sign: str) -> None:
    for password in (f"secret{sign}hidden", f"1{sign}hidden"):
        url, visible = form.format(password), ""
        try:
            visible = open_storage(url).url
        except ValueError as error:
            visible = str(error)
        assert "secret" not in visible + masked(url)
        assert "hidden" not in visible + masked(url)


def test_an_error_in_a_login_is_explained() -> None:
    with pytest.raises(ValueError, match="%2F"):
        open_storage("redis://user:a/b@host:1/0")


def test_a_storage_is_returned_and_other_objects_are_refused() -> None:
    storage = MemoryStorage()
    assert open_storage(storage) is storage
    with pytest.raises(TypeError, match="URL"):
        open_storage(3)  # type: ignore[arg-type]


def test_the_default_is_the_environment_and_then_the_state_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GLIDEMQ_URL", "redis://elsewhere")
    assert open_storage().url == "redis://elsewhere"
    monkeypatch.delenv("GLIDEMQ_URL")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert open_storage().url == (tmp_path / "glidemq").as_uri()
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_url() == (tmp_path / ".local/state/glidemq").as_uri()
