"""The environment of children: variables that programs need, and none that may contain secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_PLAIN: Final = frozenset(
    {
        "HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "PATH",
        "SHELL",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TEMP",
        "TMP",
        "TMPDIR",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
        "XDG_STATE_HOME",
    }
)
_PLAIN_PREFIXES: Final = ("LC_", "PYTHON", "DYLD_")


def plain_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that children get without permissions."""
    # A list of the variables that are passed, and not of secret ones: the name of a variable does not show that it
    # contains a secret.
    return {name: value for name, value in environ.items() if name in _PLAIN or name.startswith(_PLAIN_PREFIXES)}
