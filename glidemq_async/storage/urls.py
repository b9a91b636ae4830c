"""Storages from URLs: the forms of a URL and the meaning of their parts."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

from glidemq_async.options.validation import optional_positive_seconds
from glidemq_async.storage.protocol import Storage, StorageLike
from glidemq_async.storage.redis.connections import Endpoint
from glidemq_async.storage.redis.narrow_import import import_connections
from glidemq_async.storage.redis.standalone import RedisStorage

Options: TypeAlias = dict[str, str]

VARIABLE: Final = "GLIDEMQ_URL"
DEMAND: Final = "GLIDEMQ_REQUIRE_URL"
DEFAULT_PORT: Final = 6379
SENTINEL_PORT: Final = 26379
FORMS: Final = (
    "memory://, memory://name, file:///directory, redis://host:port/db, rediss://host:port/db (TLS), "
    "unix:///socket, redis+cluster://host:port,host:port, redis+sentinel://host:port,host:port/service; "
    "valkey can replace redis in each of them"
)
_TRUE: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_LOGIN_OPTIONS: Final = ("username", "password")
_SIGNS: Final = (
    "its parts are ambiguous; in a password write / ? # @ as %2F %3F %23 %40 (urllib.parse.quote(password, safe=''))"
)
_SECRET_OPTIONS: Final = frozenset({"password", "sentinel_password", "ssl_password"})

_log = logging.getLogger(__name__)


def open_storage(
    storage: StorageLike = None,
    *,
    timeout: float | timedelta | None = None,
    require_url: bool = False,
) -> Storage:
    """Return the storage for a URL. A storage is returned unchanged. None is `$GLIDEMQ_URL` or the embedded default.

    For a `redis.asyncio.Redis`, a `RedisCluster`, or a `Sentinel` or its `master_for`, the storage connects to the same
    servers with the same options. It opens its own connections and never closes the client. A `Sentinel` must watch
    only one service: otherwise connecting raises StorageUnavailable.

    Nothing is connected yet. `timeout` is the number of seconds for which a call is tried before it raises
    StorageUnavailable; the default is the URL's option `timeout`, or else 30. `require_url`, or `$GLIDEMQ_REQUIRE_URL`
    set to 1, forbids the embedded default: connecting then raises StorageUnavailable if `$GLIDEMQ_URL` is not set.
    Raises ValueError for a URL of an unknown form, and for a timeout of a storage that exists already. Raises TypeError
    for an object of another type.
    """
    seconds = optional_positive_seconds("timeout", timeout)
    given = storage
    if storage is None:
        storage = os.environ.get(VARIABLE) or _default(require_url=require_url)
    if isinstance(storage, str):
        return _from_url(storage, seconds)
    if not isinstance(storage, Storage):
        from glidemq_async.storage.redis.clients import client_storage

        found = client_storage(storage, seconds)
        if found is None:
            raise TypeError(f"a storage must be a URL, a Storage, a client of redis.asyncio or None, not {storage!r}")
        return found
    if seconds is not None and given is not None:
        raise ValueError(
            f"timeout={seconds:g} cannot change the storage {storage.url}, which others may use; set the timeout when "
            "you create the storage: open_storage(url, timeout=...), or ?timeout= in its URL"
        )
    return storage


def storage_here(
    storage: StorageLike, *, timeout: float | timedelta | None = None, require_url: bool = False
) -> Storage:
    """Return the result of `open_storage`, or a clone if that storage belongs to another loop than the running one."""
    opened = open_storage(storage, timeout=timeout, require_url=require_url)
    loop: object = getattr(opened, "loop", None)
    # A module may create one Storage for a whole program, for example for an app and for a web server in another
    # thread. Each loop then needs its own connections, and a clone has the same address and options.
    return opened if loop is None or loop is asyncio.get_running_loop() else opened.clone()


def _from_url(url: str, timeout: float | None) -> Storage:
    try:
        return _open(url, timeout)
    except ValueError as error:
        shown = masked(url)
        # The error may quote a part of a password that could not be recognized as one.
        reason = _SIGNS if shown == _hidden(url) else str(error)
        raise ValueError(f"{shown!r} is not a storage URL: {reason}. The forms are {FORMS}.") from None


def disable_default() -> None:
    """Record that `$GLIDEMQ_URL` is set in the parent process and was not passed on to this one.

    From now on a queue without a URL can be created here, and cannot be used unless the variable is set.
    """
    # The process of a job does not get `$GLIDEMQ_URL` unless its permissions name it. Without this mark, a queue
    # without a URL would be the embedded default there. Its adds would succeed, and no worker would ever find the jobs.
    global _is_disabled  # noqa: PLW0603 - the environment belongs to the process
    _is_disabled = True


_is_disabled = False


def _default(*, require_url: bool) -> str | Storage:
    """Return the storage for queues without a URL when `$GLIDEMQ_URL` is not set."""
    demanded = _is_demanded()
    if not (_is_disabled or require_url or demanded):
        url = default_url()
        if url not in _mentioned:
            _mentioned.add(url)
            _log.info("$%s is not set: using the embedded server with its data at %s", VARIABLE, url)
        return url
    from glidemq_async.storage.disabled import DISABLED, REQUIRED, DisabledStorage

    cause = f"${DEMAND}" if demanded else "require_url=True"
    return DisabledStorage(DISABLED if _is_disabled else REQUIRED.format(cause=cause))


_mentioned: Final = set[str]()
"""The defaults that were logged, so that each one is logged once per process."""


def _is_demanded() -> bool:
    text = os.environ.get(DEMAND) or "0"
    if text.lower() not in _TRUE:
        raise ValueError(f"${DEMAND} must be 1 or 0, not {text!r}")
    return _TRUE[text.lower()]


def default_url() -> str:
    """The embedded default: `file://` in the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or ""
    # The XDG specification demands that a relative path is ignored.
    base = Path(state) if Path(state).is_absolute() else _home() / ".local" / "state"
    return (base / "glidemq").as_uri()


def _home() -> Path:
    remedy = "Give a URL, or set $GLIDEMQ_URL, $XDG_STATE_HOME or $HOME."
    try:
        home = Path.home()
    except RuntimeError as error:
        raise ValueError(
            f"there is no default storage, because this user has no home directory: {error} {remedy}"
        ) from None
    if not home.is_absolute():
        raise ValueError(f"there is no default storage, because $HOME is not an absolute path: {str(home)!r}. {remedy}")
    return home


def _hidden(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    return f"{scheme}://..." if separator and scheme.replace("+", "").isalnum() else "..."


def masked(url: str) -> str:
    """Return the URL with passwords replaced, for messages and logs, or only its scheme if a password is unencoded."""
    # A password may contain `/`, `?`, `#` or `@` without being encoded. `urlsplit` then cuts it in two, and one half
    # becomes part of the path or the query, which are not masked. An `@` behind the host is the sign of that. Nothing
    # shows where the password ends, so only the scheme is shown. The same holds for a text that cannot be split at all.
    #
    # Every text about a URL passes through here: errors, log lines, and the property `url` of a storage.
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return _hidden(url)
    if (parts.netloc or "://" not in url) and "@" in parts.path + parts.query + parts.fragment:
        return _hidden(url)
    login, at, hosts = parts.netloc.rpartition("@")
    user, colon, _ = login.partition(":")
    netloc = f"{user}{colon and ':***'}{at}{hosts}"
    shown = "&".join(f"{name}={'***' if name in _SECRET_OPTIONS else value}" for name, value in query)
    path = parts.path
    if not netloc and parts.scheme in ("file", "unix", "memory", "valkey+unix", "redis+unix"):
        return f"{parts.scheme}://{path}{'?' + shown if shown else ''}"
    return urlunsplit((parts.scheme, netloc, path, shown, ""))


def _open(url: str, timeout: float | None) -> Storage:
    parts = _split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    timeout = _timeout(options, timeout)
    scheme = parts.scheme
    if scheme == "memory":
        return _memory(parts, options, timeout)
    if scheme == "file":
        return _file(parts, options, timeout)
    if scheme in ("unix", "redis+unix", "valkey+unix"):
        return _unix(parts, options, masked(url), timeout)
    return _open_redis(parts, options, masked(url), timeout)


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if "://" not in url:
        raise ValueError("it has no scheme, such as redis://")
    if parts.fragment:
        raise ValueError("'#' must be written as %23")
    return parts


def _open_redis(parts: SplitResult, options: dict[str, str], url: str, timeout: float | None) -> Storage:
    scheme = parts.scheme
    family, plus, kind = scheme.partition("+")
    if family not in ("redis", "rediss", "valkey", "valkeys"):
        raise ValueError(f"the scheme {scheme!r} is unknown")
    base = _base(parts, options, tls=family in ("rediss", "valkeys"))
    if not plus:
        return _single(parts, options, base, url, timeout)
    if kind == "cluster":
        return _cluster(parts, options, base, url, timeout)
    if kind == "sentinel":
        return _sentinel(parts, options, base, url, timeout)
    raise ValueError(f"the scheme {scheme!r} is unknown")


def _memory(parts: SplitResult, options: Options, timeout: float | None) -> Storage:
    from glidemq_async.storage.embedded.memory import MemoryStorage

    _no_more(options)
    if parts.path not in ("", "/"):
        raise ValueError("memory:// takes a name, not a path")
    return MemoryStorage(unquote(parts.netloc), timeout=timeout)


def _file(parts: SplitResult, options: Options, timeout: float | None) -> Storage:
    from glidemq_async.storage.embedded.file import FileStorage

    if parts.netloc not in ("", "localhost"):
        raise ValueError(f"file:// takes an absolute path; write file:///{parts.netloc.rpartition('@')[2]}{parts.path}")
    directory = unquote(parts.path)
    if not directory.startswith("/") or directory == "/":
        raise ValueError("file:// takes the absolute path of a directory")
    linger = options.pop("linger", None)
    _no_more(options, "linger")
    return FileStorage(directory, linger=None if linger is None else _seconds("linger", linger), timeout=timeout)


def _unix(parts: SplitResult, options: Options, shown: str, timeout: float | None) -> Storage:
    login, _, host = parts.netloc.rpartition("@")
    if host or not parts.path:
        raise ValueError("unix:// takes the absolute path of a socket")
    username, password = _login(login)
    db = _number("db", options.pop("db", "0"))
    username = options.pop("username", username)
    password = options.pop("password", password)
    endpoint = Endpoint(path=unquote(parts.path), username=username, password=password, db=db)
    return RedisStorage(_with_options(endpoint, options, *_LOGIN_OPTIONS, "db"), shown, timeout=timeout)


def _base(parts: SplitResult, options: Options, *, tls: bool) -> Endpoint:
    username, password = _login(parts.netloc.rpartition("@")[0])
    username = options.pop("username", username)
    password = options.pop("password", password)
    for name in options:
        if name.startswith("ssl_") and not tls:
            raise ValueError(f"the option {name} needs rediss:// or valkeys://")
    return Endpoint(username=username, password=password, tls=tls)


def _with_options(endpoint: Endpoint, options: Options, *known: str) -> Endpoint:
    """Return the endpoint with the remaining options, which must be options of redis-py's URLs."""
    if not options:
        return endpoint
    # Imports redis-py, so only for URLs with options.
    import_connections()
    from glidemq_async.storage.redis.url_options import connection_options

    return connection_options(endpoint, options, ("timeout", *known))


def _single(parts: SplitResult, options: Options, base: Endpoint, shown: str, timeout: float | None) -> Storage:
    hosts = _hosts(parts, DEFAULT_PORT)
    if len(hosts) != 1:
        raise ValueError("several hosts need +cluster or +sentinel in the scheme")
    path = parts.path.strip("/")
    db = _number("db", options.pop("db", path or "0"))
    endpoint = _with_options(base.at(*hosts[0]), options, *_LOGIN_OPTIONS, "db")
    return RedisStorage(replace(endpoint, db=db), shown, timeout=timeout)


def _cluster(parts: SplitResult, options: Options, base: Endpoint, shown: str, timeout: float | None) -> Storage:
    from glidemq_async.storage.redis.cluster import ClusterStorage

    if parts.path.strip("/") not in ("", "0"):
        raise ValueError("a cluster has only database 0")
    base = _with_options(base, options, *_LOGIN_OPTIONS)
    return ClusterStorage(_hosts(parts, DEFAULT_PORT), base, shown, timeout=timeout)


def _sentinel(parts: SplitResult, options: Options, base: Endpoint, shown: str, timeout: float | None) -> Storage:
    from glidemq_async.storage.redis.sentinel import SentinelStorage

    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("the name of the sentinel service is missing after the hosts, as in .../mymaster")
    sentinel_login = options.pop("sentinel_username", None), options.pop("sentinel_password", None)
    number = _number("db", options.pop("db", db or "0"))
    base = _with_options(base, options, *_LOGIN_OPTIONS, "db", "sentinel_username", "sentinel_password")
    # The login of the URL is for the primary. Sentinels have separate users. If the URL has no login for them, none is
    # sent.
    login = replace(base, username=sentinel_login[0], password=sentinel_login[1])
    sentinels = [login.at(*host) for host in _hosts(parts, SENTINEL_PORT)]
    return SentinelStorage(sentinels, unquote(service), replace(base, db=number), shown, timeout=timeout)


def _hosts(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    hosts: list[tuple[str, int]] = []
    for text in parts.netloc.rpartition("@")[2].split(","):
        # `urlsplit` and not a split at the colon, because an IPv6 address in brackets contains colons.
        one = urlsplit(f"//{text}")
        if text and not one.hostname:
            raise ValueError(f"{text!r} is not a host")
        hosts.append((one.hostname or "localhost", one.port or default_port))
    return hosts


def _login(text: str) -> tuple[str | None, str | None]:
    user, _, password = text.partition(":")
    # An empty name, as in `redis://:password@host`, is the default user of the server.
    return unquote(user) or None, unquote(password) or None


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{name} must be a number, not {text!r}")
    return int(text)


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise ValueError(f"{name} must be seconds, not {text!r}")
    return value


def _timeout(options: Options, timeout: float | None) -> float | None:
    """Remove the option `timeout` and return its seconds. A timeout given elsewhere takes precedence."""
    text = options.pop("timeout", None)
    if text is None:
        return timeout
    value = _seconds("timeout", text)
    if not value:
        raise ValueError(f"timeout must be more than 0 seconds, not {text!r}")
    return value if timeout is None else timeout


def _no_more(options: Mapping[str, str], *known: str) -> None:
    """Refuse the remaining options. The error names the options of this URL form."""
    if options:
        names = ", ".join(sorted(("timeout", *known)))
        raise ValueError(f"the option {min(options)!r} is unknown here; the known options are: {names}")
