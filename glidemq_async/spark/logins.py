"""Options that other connectors have for what stands in the URL here."""

from __future__ import annotations

from typing import Final

__all__ = ["belongs_in_url"]

_LOGIN: Final = frozenset({"username", "user", "password", "passwd", "auth", "host", "port", "db", "database", "tls"})


def belongs_in_url(option: str) -> str:
    """Return how the URL says what this option, in lower case, asks for; "" for any other one."""
    if option not in _LOGIN and not option.startswith("ssl"):
        return ""
    return (
        "the option `url` says all of the connection, as in "
        "rediss://user:password@host:6379/0?ssl_ca_certs=/etc/ca.pem (rediss is TLS; in a password write / ? # @ as "
        "%2F %3F %23 %40)"
    )
