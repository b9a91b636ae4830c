"""Finds the permission that a refused operation needed, for the error message.

The kernel reports only EPERM or EACCES. Python's audit events describe the operation, so the last event of each thread
is kept.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, cast

from glidemq_async.errors import ControlFlow, PermissionDenied
from glidemq_async.executors.permissions import Permissions

_REFUSALS: Final = (errno.EPERM, errno.EACCES)
_READS: Final = ("os.listdir", "os.scandir", "os.walk", "os.fwalk", "glob.glob", "os.listxattr", "os.getxattr")
_CHANGES: Final = (
    *("os.mkdir", "os.rmdir", "os.remove", "os.rename", "os.link", "os.symlink", "os.truncate", "os.mkfifo"),
    *("os.mknod", "shutil.rmtree", "shutil.move", "tempfile.mkstemp", "tempfile.mkdtemp"),
)
_METADATA: Final = ("os.chmod", "os.chown", "os.chflags", "os.utime", "os.setxattr", "os.removexattr")
_PROGRAMS: Final = (
    *("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn"),
)
_SIGNALS: Final = ("os.kill", "os.killpg", "signal.pthread_kill")
_WATCHED: Final = (
    *("os.", "socket.", "subprocess.", "signal.", "shutil.", "tempfile.", "glob.", "pty."),
    *("fcntl.", "ctypes.", "resource."),
)
"""Events of operations. Other events describe Python's internal work, and are frequent."""

_NO_ADVICE: Final = "the permissions of the job do not allow this operation"

# Per thread, because audit events of all threads arrive in one hook. Without that, the error of a job could be
# explained by an operation of the thread that reads the channel.
_last = threading.local()
_watched: Final[list[bool]] = []


def watch() -> None:
    """Record the operations of each thread from now on. This cannot be undone, so use it only in children."""
    if _watched:
        return
    _watched.append(True)

    def remember(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" or event.startswith(_WATCHED):
            # Keep only plain values: a reference to a socket would keep it open.
            _last.event = (event, tuple(each if _is_plain(each) else None for each in arguments))

    sys.addaudithook(remember)


def _is_plain(value: object) -> bool:
    return isinstance(value, (str, bytes, int, tuple, os.PathLike))


def denied(error: BaseException, permissions: Permissions) -> PermissionDenied | None:
    """Return a PermissionDenied for a job's error, or None if it has another cause. Call this in the job's thread.

    An error counts if it or its cause is a PermissionError, or a failed lookup of a host name without network
    permission. The message names the permission to grant if it is known. Control-flow errors (RetryLater and others)
    are never replaced.
    """
    if isinstance(error, ControlFlow):
        return None
    for found in _chain(error):
        refused = isinstance(found, OSError) and (found.errno in _REFUSALS or isinstance(found, PermissionError))
        unresolved = isinstance(found, socket.gaierror) and permissions.network is False
        if refused or unresolved:
            result = PermissionDenied(f"{_type_and_text(found)}: {_advice(found, permissions)}")
            result.__cause__ = error
            return result
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    left = [error]
    while left:
        found = left.pop(0)
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        context = None if found.__suppress_context__ else found.__context__
        left += [each for each in (found.__cause__, context) if each is not None]
        if isinstance(found, BaseExceptionGroup):
            left += cast("BaseExceptionGroup[BaseException]", found).exceptions


def _type_and_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _advice(error: BaseException, permissions: Permissions) -> str:
    event, arguments = getattr(_last, "event", ("", ()))
    if isinstance(error, socket.gaierror):
        event, arguments = "socket.getaddrinfo", (error,)
    path = _text(getattr(error, "filename", None))
    for names, advise, needs_path in _ADVISERS:
        if event in names or event.startswith(tuple(name for name in names if name.endswith("."))):
            # Errors about a path name the path. An error without one belongs to an operation without an event.
            return advise(event, arguments, path, permissions) if path or not needs_path else _NO_ADVICE
    return _path_advice(path, permissions) if path else _NO_ADVICE


def _text(value: Any) -> str | None:
    if not isinstance(value, (str, bytes, os.PathLike)):
        return None
    return os.path.abspath(os.fsdecode(cast("str | bytes | os.PathLike[str]", value)))


def _opened(_event: str, arguments: tuple[Any, ...], path: str | None, permissions: Permissions) -> str:
    # Another thread may have failed while this one opened another file.
    if _text(arguments[0]) != path:
        return _path_advice(path, permissions)
    flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
    writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
    return _write_advice(path, permissions) if writes else _path_advice(path, permissions)


def _listed(_event: str, _arguments: tuple[Any, ...], path: str | None, permissions: Permissions) -> str:
    return _path_advice(path, permissions)


def _changed(_event: str, arguments: tuple[Any, ...], path: str | None, permissions: Permissions) -> str:
    paths = [each for each in (path, *(_text(each) for each in arguments)) if each is not None]
    uncovered = [each for each in paths if not _covered(each, permissions.write)]
    return _write_advice(uncovered[0] if uncovered else next(iter(paths), None), permissions)


def _described(event: str, *_: object) -> str:
    return f"{event} changes the metadata of a file; grant Permissions(write=True), as a list of paths is not enough"


def _started(*_: object) -> str:
    return "grant Permissions(subprocess=True) to start other processes, and read= for programs outside of the system"


def _signalled(*_: object) -> str:
    return (
        "a job can send signals only to its own process and to processes that it started; no permission allows others"
    )


def _connected(event: str, arguments: tuple[Any, ...], _path: str | None, permissions: Permissions) -> str:
    # The address of a unix socket is a text and has no port.
    address: Any = arguments[1] if event == "socket.connect" and len(arguments) > 1 else None
    port = cast("tuple[object, ...]", address)[1] if isinstance(address, tuple) else None
    if isinstance(port, int):
        return f"grant Permissions(network=[{port}]) to connect to TCP port {port}, or network=True"
    if permissions.network is False:
        return "grant Permissions(network=True), or the TCP ports to connect to"
    return "a list of TCP ports allows only connections to these; grant Permissions(network=True) to allow all sockets"


def _path_advice(path: str | None, permissions: Permissions) -> str:
    if path is None:
        return "grant the path with Permissions(read=[...]) or Permissions(write=[...])"
    if path.startswith("/proc/"):
        return "a job cannot read files of other processes in /proc; no permission allows it"
    if _covered(path, permissions.write):
        return f"write= covers {path}, but its mode or owner refuses the operation"
    if _covered(path, permissions.read):
        return f"grant Permissions(write=[{path!r}]) to write it; read= covers it, so its mode or owner refuses a read"
    return f"grant Permissions(read=[{path!r}])"


def _write_advice(path: str | None, permissions: Permissions) -> str:
    if path is None:
        return "grant the path with Permissions(write=[...])"
    if _covered(path, permissions.write):
        return f"write= covers {path}, but its mode or owner refuses the operation"
    return f"grant Permissions(write=[{path!r}]), or grant a directory above it"


def _covered(path: str, granted: bool | tuple[str, ...]) -> bool:
    if isinstance(granted, bool):
        return granted
    real = _real(path)
    return any(os.path.commonpath((real, each)) == each for each in map(_real, granted))


def _real(path: str) -> str:
    # Links of other processes in /proc may not be readable.
    with suppress(OSError):
        return os.path.realpath(path)
    return path


_Adviser = Callable[[str, tuple[Any, ...], "str | None", Permissions], str]
_ADVISERS: Final[tuple[tuple[tuple[str, ...], _Adviser, bool], ...]] = (
    (("open",), _opened, True),
    (_READS, _listed, True),
    (_CHANGES, _changed, True),
    (_METADATA, _described, True),
    (_PROGRAMS, _started, False),
    (_SIGNALS, _signalled, False),
    (("socket.",), _connected, False),
)
