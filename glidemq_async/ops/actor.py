"""The person or program that makes a change."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Source: TypeAlias = Literal["python", "cli", "http", "page", "tui", "mcp"]
"""The face through which a change was made."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The person or program that makes a change, as audit lines name it.

    `source` is the face that was used, `name` the user, and `address` the network address of the client, "" if there is
    none. Raises ValueError for an unknown source, TypeError for a name that is no text.
    """

    source: Source
    name: str
    address: str = ""

    def __post_init__(self) -> None:
        if self.source not in get_args(Source):
            raise ValueError(f"source must be one of {', '.join(get_args(Source))}, got {self.source!r}")
        for value in (self.name, self.address):
            if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"the name and the address of an actor are texts, got {value!r}")

    @property
    def label(self) -> str:
        """The name and the face, as histories of jobs show them."""
        return f"{self.name} ({self.source})"

    @classmethod
    def here(cls, source: Source = "python") -> Actor:
        """Return the user of this process."""
        try:
            return cls(source, getpass.getuser())
        except (KeyError, OSError):  # a container whose user has no name
            return cls(source, "unknown")
