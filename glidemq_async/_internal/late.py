"""Parts of higher layers that a lower layer offers under a short name.

The top package names the parts, so no module imports upwards. A part is imported on first use.
"""

from __future__ import annotations

from importlib import import_module

_places: dict[str, str] = {}


def provide(part: str, place: str) -> None:
    """Name the place of a part: "package.module:attribute"."""
    _places[part] = place


def load(part: str) -> object:
    """Import and return a part. Raises KeyError if no module has provided it."""
    module, _, attribute = _places[part].partition(":")
    return getattr(import_module(module), attribute)
