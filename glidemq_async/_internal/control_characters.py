"""Escapes control characters in untrusted texts before they are printed or logged."""

from __future__ import annotations

import json


def escape(text: str, *, keep: str = "") -> str:
    """Return the text with each non-printable character as in a Python literal (`\\x1b`).

    This includes C0 and C1 controls, bidirectional marks, line separators and lone surrogates. Characters in `keep` are
    not escaped.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def escape_json(document: str) -> str:
    """Return the same JSON document with control characters inside strings escaped as `\\u001b`.

    Line feeds between its parts are kept.
    """
    if document.isprintable():
        return document
    return "".join(c if c.isprintable() or c == "\n" else _in_json(c) for c in document)


def _in_json(character: str) -> str:
    # json.dumps does not escape U+007F.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
