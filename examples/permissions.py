"""Confine a job to the files and resources that were granted. Needs Linux 5.13."""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from glidemq_async.executors import Permissions, sandbox


def job(place: Path, permissions: Permissions) -> None:
    """Try some operations as a job would; only some of them are granted."""

    def attempt(what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            refusal = sandbox.denied(error, permissions)
            print(f"{what}: {type(refusal).__name__ if refusal else error}")
        else:
            print(f"{what}: granted")

    attempt("write the result", lambda: (place / "out" / "result.txt").write_text("done"))
    attempt("read the secret", (place / "secret.txt").read_text)
    attempt("remove the secret", (place / "secret.txt").unlink)
    attempt("open a socket", lambda: socket.create_connection(("127.0.0.1", 9)))
    attempt("start a program", lambda: subprocess.run(["true"], check=True))
    try:
        bytearray(2**31)
    except MemoryError:
        print("take 2 GiB of memory: MemoryError")


def main() -> None:
    # A worker does this automatically for tasks with executor="subprocess" and permissions=Permissions(...): it starts
    # processes with the granted environment, applies the permissions, and runs jobs in them.
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if place is not None:
        permissions = Permissions(write=[place / "out"], memory="1GiB", cpu=10)
        sandbox.apply(permissions)
        job(place, permissions)
        return
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "out").mkdir()
        (place / "secret.txt").write_text("a password")
        permissions = Permissions(write=[place / "out"], memory="1GiB", cpu=10)
        print("granted:", [name for name, value in asdict(permissions).items() if value])
        environment = sandbox.child_environment(permissions, {"PATH": "/usr/bin:/bin", "DATABASE_PASSWORD": "secret"})
        print("variables:", [name for name in environment if name != "TMPDIR"])
        subprocess.run([sys.executable, __file__, directory], env=environment, check=True)
        print((place / "out" / "result.txt").read_text(), (place / "secret.txt").exists())


if __name__ == "__main__":
    main()
