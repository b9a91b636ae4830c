"""A worker process that a supervisor started.

Standard input is a socket to the supervisor that carries JSON lines. The supervisor sends the settings, requests for
pages of the delegated ports, and the order to release running jobs. The process reports that it claims jobs, and the
ports that it delegates. It ends when the supervisor ends, for whatever reason, because the socket closes then.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Final

from glidemq_async.cli.worker.settings import WorkerSettings

ORPHAN_SECONDS: Final = 10.0
"""Seconds that a process may take to release its jobs after its supervisor has died. Then it is killed."""
_ORPHANED: Final = 1


def main() -> None:
    """Serve one supervisor."""
    channel = _take_standard_input()
    lines = channel.makefile("rb")
    settings = WorkerSettings.from_line(lines.readline())
    # Imported after the first line, so that a slow import does not delay it.
    from glidemq_async._internal.http_endpoint import delegate_ports_to
    from glidemq_async.cli.worker.delegated_ports import DelegatedPorts
    from glidemq_async.cli.worker.process import WorkerRun

    sending = threading.Lock()

    def say(message: dict[str, object]) -> None:
        with sending, suppress(OSError):  # the end of the supervisor is noticed below
            channel.sendall(json.dumps(message).encode() + b"\n")

    ports = DelegatedPorts(say)
    delegate_ports_to(ports)
    process = WorkerRun(settings, ready=lambda: say({"say": "ready"}))

    def watch() -> None:
        for line in lines:
            message = json.loads(line)
            if message["do"] != "release":
                ports.hear(message)
            elif not process.release_jobs_from_thread():
                os._exit(_ORPHANED)
        # The socket has closed: the supervisor is dead, even if it was killed by SIGKILL. This thread notices that
        # although the event loop may be blocked. Nothing could stop or restart this process any more, so it releases
        # its jobs and ends.
        if process.release_jobs_from_thread():
            # A blocked loop, or a blocked exit of the interpreter, is tolerated for this long.
            time.sleep(ORPHAN_SECONDS)
        os._exit(_ORPHANED)

    # A daemon thread: it blocks in a read of the socket, and the interpreter would wait for it at its exit.
    threading.Thread(target=watch, daemon=True, name="glidemq-supervisor").start()
    sys.exit(process.run())


def _take_standard_input() -> socket.socket:
    """Move the socket away from descriptor 0, because the app might read from it."""
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return channel


if __name__ == "__main__":
    main()
