"""Escapes characters that could steer a terminal, in texts that others wrote and that are printed or logged."""

from __future__ import annotations

import json


def escape(text: str, *, keep: str = "") -> str:
    """Return a text in which each character that is not printable reads as in a Python literal (`\\x1b`).

    That covers the controls of C0 and C1, the marks of bidirectional text, line separators and lone surrogates. The
    characters in `keep` stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def escape_json(document: str) -> str:
    """Return the same JSON document without raw control characters: inside of strings they become `\\u001b`.

    Line feeds between its parts stay.
    """
    if document.isprintable():
        return document
    return "".join(c if c.isprintable() or c == "\n" else _in_json(c) for c in document)


def _in_json(character: str) -> str:
    # json.dumps leaves U+007F as it is.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
