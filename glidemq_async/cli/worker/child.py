"""The process that a supervisor starts: its settings and its supervisor's life come over standard input.

Standard input is a socket to the supervisor, JSON lines: settings come in; out goes that jobs are claimed, and which
ports are lent; in come what is asked for of these, and that running jobs are to be handed back. It ends when the
supervisor does, however that happens.
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

from glidemq_async.cli.worker.settings import Settings

ORPHAN_SECONDS: Final = 10.0
"""How long a process whose supervisor is gone may take to hand its jobs back before it is ended in any case."""
_ORPHANED: Final = 1


def main() -> None:
    """Serve one supervisor."""
    channel = _take_standard_input()
    lines = channel.makefile("rb")
    settings = Settings.from_line(lines.readline())
    # After the first line, so that nothing that takes long stands before it.
    from glidemq_async._internal.http_endpoint import lend_ports_to
    from glidemq_async.cli.worker.lent_ports import LentPorts
    from glidemq_async.cli.worker.process import Process

    sending = threading.Lock()

    def say(words: dict[str, object]) -> None:
        with sending, suppress(OSError):  # a supervisor that is gone is heard of below
            channel.sendall(json.dumps(words).encode() + b"\n")

    ports = LentPorts(say)
    lend_ports_to(ports)
    process = Process(settings, ready=lambda: say({"say": "ready"}))

    def watch() -> None:
        for line in lines:
            words = json.loads(line)
            if words["do"] != "hurry":
                ports.hear(words)
            elif not process.hurry_from_thread():
                os._exit(_ORPHANED)
        if process.hurry_from_thread():
            # What blocks the loop, or the end of the interpreter, may do so for this long.
            time.sleep(ORPHAN_SECONDS)
        os._exit(_ORPHANED)

    threading.Thread(target=watch, daemon=True, name="glidemq-supervisor").start()
    sys.exit(process.run())


def _take_standard_input() -> socket.socket:
    """Move the socket away from descriptor 0, where the app might read."""
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return channel


if __name__ == "__main__":
    main()
