"""The server-side function library as one source text, its name and its version.

The Lua files are joined in dependency order. Each of them starts with its calling contract.
The storage layer loads the text into servers.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

LIBRARY: Final = "glidemq_async_v2"
"""Name of the library on the server. The major version is part of it, so two majors can be loaded together."""

VERSION: Final = "2.0.0"
"""Version of the functions. A newer minor serves older clients; a loader never replaces a newer one.

Raise it with the first change after a release: `released.json` holds the fingerprint of each released version.
"""

FILES: Final = (
    "base",
    "budget",
    "access",
    "request",
    "incarnation",
    "settings",
    "layout",
    "queue_flags",
    "order",
    "event_rules",
    "events",
    "dedup",
    "chunks",
    "journals",
    "record",
    "entries",
    "compact",
    "prioritized",
    "plain",
    "runs",
    "failure_groups",
    "job_history",
    "results",
    "limits",
    "line_texts",
    "line_rests",
    "key_lines",
    "keyed",
    "keyed_reviews",
    "keyed_limits",
    "event_content",
    "stopping",
    "keyed_claim",
    "routes",
    "locations",
    "push",
    "wakeup",
    "notices",
    "marks",
    "one_plain",
    "returned",
    "scheduled",
    "successors",
    "metrics",
    "outbox",
    "dead_letters",
    "finish",
    "removal",
    "compact_adds",
    "add",
    "grouped_adds",
    "plans",
    "flow_jobs",
    "flows",
    "children",
    "graphs",
    "schedulers",
    "scheduler_list",
    "claim_tokens",
    "claimed_rows",
    "compact_claims",
    "compact_pushes",
    "claim",
    "direct_claim",
    "warm_runs",
    "signals",
    "outcomes",
    "completing",
    "compact_ends",
    "settle_groups",
    "one_run",
    "settle",
    "set_back",
    "lease",
    "stalled",
    "jobs",
    "inbox",
    "replaying",
    "changes",
    "updates",
    "streaming",
    "steps",
    "mending",
    "result_ttl",
    "job_waiters",
    "queue",
    "migration",
    "writes",
    "key_limits",
    "retention",
    "reading",
    "worker_list",
    "watching",
    "history",
    "checking",
    "checking_marks",
    "searching",
    "explain",
    "known_tasks",
    "cleaning",
    "obliterate",
    "topics",
    "feeds",
    "audit",
    "summary",
    "tokens",
    "bulk",
    "operations",
    "alerts",
)
"""The Lua files in the order in which they are joined. A file uses only names of the files before it."""


_GLOBAL_NAMES: Final = (
    "redis, string, table, math, cmsgpack, tonumber, tostring, type, next, ipairs, pairs, select, unpack, pcall, "
    "error, setmetatable"
)
_GLOBALS: Final = f"""
local function all_globals() return {_GLOBAL_NAMES} end
local register_function = redis.register_function
local {_GLOBAL_NAMES}
redis = {{register_function = function(given)
  local callback = given.callback
  given.callback = function(keys, args)
    if not string then {_GLOBAL_NAMES} = all_globals() end
    return callback(keys, args)
  end
  register_function(given)
end}}
"""
"""The global functions and libraries as locals of the whole text, from the first call on.

The server protects its globals, so Lua looks each of them up in three tables, and a call uses some hundred of them.
While the library is loaded, it has no globals but a part of `redis`.
"""


def fingerprint(text: str) -> str:
    """Return the fingerprint of a library text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def released() -> dict[str, str]:
    """Return the fingerprint of each released version."""
    found: dict[str, str] = json.loads(_folder().joinpath("released.json").read_text(encoding="utf-8"))
    return found


@cache
def build_version(*, testing: bool = False) -> str:
    """Return the version of this text: `2.0.0` once it is released, `2.0.0.dev<ms>` before.

    A text under development has no version number that grows. Its build is the time of the last change to one of its
    files, so an edit or a checkout makes a newer build. `+testing` marks a build with the switches for tests.
    """
    version = VERSION
    if version not in released():
        version += f".dev{_last_written_ms()}"
    return version + ("+testing" if testing else "")


def _last_written_ms() -> int:
    # The newest file decides, so two processes with the same checkout compute the same build and do not replace each
    # other's library.
    latest = 0
    for name in FILES:
        with suppress(OSError):  # in a zip file
            latest = max(latest, Path(str(_folder() / f"{name}.lua")).stat().st_mtime_ns // 1_000_000)
    return latest


def function_name(short: str) -> str:
    """Return the name under which the server knows a function, e.g. ``addJob`` -> ``glidemq_async_v2_addJob``."""
    return f"{LIBRARY}_{short}"


@cache
def source(*, testing: bool = False) -> str:
    """Return the whole library as the text of one ``FUNCTION LOAD``.

    ``testing=True`` adds switches for a shifted clock and for fencing. Use it only for servers that a test starts.
    """
    folder = _folder()
    names = (*FILES, "testing") if testing else FILES
    parts = [f"#!lua name={LIBRARY}\nlocal VERSION = '{VERSION}'{_GLOBALS}"]
    parts += [_block(name, (folder / f"{name}.lua").read_text(encoding="utf-8")) for name in names]
    return "\n".join(parts)


def _folder() -> Traversable:
    return files(__package__ or "glidemq_async.functions")


def _block(name: str, text: str) -> str:
    """Return a file as a block. Only the table with the file's name is visible outside.

    Lua allows 200 local names in one block, and the files together have more. `base` stays outside: all files use it.
    """
    if name == "base":
        return text
    # The file declares its table as a local. Here the declaration moves in front of the block, and everything else
    # stays inside.
    body = text.replace(f"\nlocal {name} = ", f"\n{name} = ", 1)
    return f"local {name}\ndo\n{body}end" if body != text else f"do\n{text}end"
