"""`file://` and `memory://`: starting, sharing, dying in any order, restarting, and ending."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from glidemq_async.errors import EmbeddedServerMissing, StorageUnavailable
from glidemq_async.storage import FileStorage, MemoryStorage, open_storage
from glidemq_async.storage.embedded.file import socket_path
from glidemq_async.storage.embedded.keeper import KeeperConnection
from tests.storage.small_library import KEY, LIBRARY
from tests.support.servers import eventually

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found through /proc")

LINGER = 0.4


@pytest.fixture
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="gmq-"))
    try:
        yield made
    finally:
        # Its keeper notices the missing directory and ends the server.
        shutil.rmtree(made, ignore_errors=True)


def _storage(directory: Path, linger: float = LINGER) -> FileStorage:
    return FileStorage(directory, linger=linger, library=LIBRARY)


def _processes(needle: str, *, program: str = "") -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if needle in command and program in command and state != "Z":
            found.append(int(entry.name))
    return found


def _keepers(directory: Path) -> list[int]:
    return _processes(f"keeper.py {directory} ")


def _servers(directory: Path) -> list[int]:
    return _processes(f"unixsocket:{socket_path(str(directory))}")


async def _gone(directory: Path) -> bool:
    return not _keepers(directory) and not _servers(directory)


async def test_an_embedded_server_keeps_its_data_and_ends_after_the_last_client(directory: Path) -> None:
    folder = directory / "new" / "deep"
    async with _storage(folder) as one:
        assert await one.call("count", KEY, ["a"]) == b"1"
        async with _storage(folder) as two:
            assert await two.call("count", KEY, ["b"]) == b"2"
        await asyncio.sleep(LINGER * 3)
        # A client is still connected, even if it is quiet.
        assert len(_servers(folder)) == 1
        assert await one.call("count", KEY, ["c"]) == b"3"
    await eventually(lambda: _gone(folder), "keeper and server have ended")
    assert not os.path.lexists(socket_path(str(folder)))  # noqa: ASYNC240
    async with _storage(folder) as later:
        assert await later.call("counted", KEY, []) == b"3"


async def test_only_the_user_has_access_to_the_directory(directory: Path) -> None:
    folder = directory / "made"
    async with _storage(folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(Path(socket_path(str(folder))).stat().st_mode) == 0o700  # noqa: ASYNC240
        for name in ("keeper.lock", "server.lock", "server.log"):
            assert stat.S_IMODE((folder / name).stat().st_mode) & 0o077 == 0


@pytest.mark.crash
@pytest.mark.parametrize("order", ["server", "keeper", "server keeper", "keeper server"])
async def test_no_acknowledged_call_is_lost_when_they_are_killed(directory: Path, order: str) -> None:
    async with _storage(directory) as storage:
        acknowledged = 0
        for _ in range(3):
            for _ in range(20):
                await storage.call("count", KEY, [f"t{acknowledged}"])
                acknowledged += 1
            for who in order.split():
                for pid in _servers(directory) if who == "server" else _keepers(directory):
                    os.kill(pid, signal.SIGKILL)
            call = storage.call("count", KEY, [f"t{acknowledged}"])
            acknowledged += 1
            assert await call == str(acknowledged).encode()

        async def whole() -> bool:
            # A keeper that was killed while its server lives is missed only when the server's connections end.
            await storage.call("counted", KEY, [])
            return len(_keepers(directory)) == len(_servers(directory)) == 1

        await eventually(whole, "one keeper and one server must run again")


@pytest.mark.crash
async def test_a_killed_client_leaves_the_server_to_others(directory: Path) -> None:
    client = await _client(directory, "await storage.call('count', KEY, ['theirs']); print('ready', flush=True)")
    async with _storage(directory) as storage:
        client.kill()
        await client.wait()
        assert await storage.call("counted", KEY, []) == b"1"
        assert len(_servers(directory)) == 1
    await eventually(lambda: _gone(directory), "keeper and server have ended")


@pytest.mark.crash
async def test_killing_all_processes_loses_nothing(directory: Path) -> None:
    client = await _client(directory, "await storage.call('count', KEY, ['theirs']); print('ready', flush=True)")
    for pid in [client.pid, *_keepers(directory), *_servers(directory)]:
        os.kill(pid, signal.SIGKILL)
    await client.wait()
    async with _storage(directory) as storage:
        assert await storage.call("counted", KEY, []) == b"1"


async def _client(directory: Path, work: str) -> asyncio.subprocess.Process:
    source = f"""
        import asyncio, sys
        from glidemq_async.storage import FileStorage
        from tests.storage.small_library import KEY, LIBRARY
        async def main():
            storage = FileStorage({str(directory)!r}, linger={LINGER}, library=LIBRARY)
            await storage.connect()
            {work}
            await asyncio.sleep(60)
        asyncio.run(main())
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(source), stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 20) == b"ready\n"
    return process


@pytest.mark.crash
async def test_concurrent_starts_get_one_server(directory: Path) -> None:
    work = "print('ready', flush=True); await storage.call('count', KEY, [str(id(storage))])"
    clients = await asyncio.gather(*(_client(directory, work) for _ in range(4)))
    try:
        async with _storage(directory) as storage:
            await eventually(lambda: _four(storage), "all four have counted")
            # The other keepers end by themselves.
            await eventually(lambda: _one_keeper(directory), "one keeper is left")
            assert len(_servers(directory)) == 1
    finally:
        for client in clients:
            client.kill()
            await client.wait()


async def _one_keeper(directory: Path) -> bool:
    return len(_keepers(directory)) == 1


async def _four(storage: FileStorage) -> bool:
    return await storage.call("executions", KEY, []) == b"4"


async def test_ctrl_c_does_not_reach_keeper_and_server(directory: Path) -> None:
    client = await _client(directory, "print('ready', flush=True)")
    [keeper], [server] = _keepers(directory), _servers(directory)
    assert os.getsid(keeper) not in (os.getsid(client.pid), os.getsid(0))
    os.kill(keeper, signal.SIGINT)
    async with _storage(directory) as storage:
        await storage.call("count", KEY, ["a"])
        assert (_keepers(directory), _servers(directory)) == ([keeper], [server])
    client.kill()
    await client.wait()


async def test_a_terminated_keeper_ends_its_server(directory: Path) -> None:
    async with _storage(directory, linger=60) as storage:
        await storage.call("count", KEY, ["a"])
    [keeper] = _keepers(directory)
    os.kill(keeper, signal.SIGTERM)
    await eventually(lambda: _gone(directory), "keeper and server have ended")
    async with _storage(directory) as storage:
        assert await storage.call("counted", KEY, []) == b"1"


@pytest.mark.crash
async def test_a_stale_socket_is_replaced(directory: Path) -> None:
    async with _storage(directory) as storage:
        await storage.call("count", KEY, ["a"])
        for pid in [*_keepers(directory), *_servers(directory)]:
            os.kill(pid, signal.SIGKILL)
    await eventually(lambda: _gone(directory), "both are dead")
    assert os.path.lexists(socket_path(str(directory)))  # noqa: ASYNC240
    async with _storage(directory) as storage:
        assert await storage.call("counted", KEY, []) == b"1"


async def _stopped_with_data(directory: Path) -> Path:
    async with _storage(directory) as storage:
        for number in range(100):
            await storage.call("count", KEY, [f"{number}"])
    await eventually(lambda: _gone(directory), "keeper and server have ended")
    [aof] = (directory / "appendonlydir").glob("*.incr.aof")
    return aof


async def test_a_truncated_file_is_a_prefix(directory: Path) -> None:
    aof = await _stopped_with_data(directory)
    os.truncate(aof, aof.stat().st_size - 7)
    async with _storage(directory) as storage:
        assert await storage.call("counted", KEY, []) == b"99"


async def test_an_unreadable_file_is_reported_with_the_log(directory: Path) -> None:
    aof = await _stopped_with_data(directory)
    content = aof.read_bytes()
    middle = len(content) // 2
    aof.write_bytes(content[:middle] + b"\x00garbage\x00" * 20 + content[middle:])
    storage = _storage(directory)
    with pytest.raises(StorageUnavailable, match=r"(?s)last lines of its log.*Bad file format"):
        await storage.connect()
    await storage.close()


async def test_a_long_path_has_its_socket_in_the_runtime_directory(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = directory / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    folder = directory / ("long" * 20) / ("name" * 20)
    async with _storage(folder) as one, _storage(folder) as two:
        await one.call("count", KEY, ["a"])
        assert await two.call("count", KEY, ["b"]) == b"2"
        [found] = (runtime / "glidemq").iterdir()
        assert found.is_socket()
        assert stat.S_IMODE((runtime / "glidemq").stat().st_mode) == 0o700
    (runtime / "glidemq").chmod(0o755)
    with pytest.raises(StorageUnavailable, match="belongs to this user alone"):
        await _storage(folder).connect()


async def test_an_unusable_directory_is_reported(directory: Path) -> None:
    (directory / "taken").write_text("a file")
    with pytest.raises(StorageUnavailable, match="cannot be used"):
        await _storage(directory / "taken").connect()


async def test_a_removed_directory_ends_its_keeper(directory: Path) -> None:
    folder = directory / "here"
    storage = _storage(folder, linger=60)
    await storage.connect()
    await storage.close()
    shutil.rmtree(folder)
    await eventually(lambda: _gone(folder), "keeper and server have ended")
    assert not folder.exists()


async def test_memory_ends_with_its_storage() -> None:
    storage = MemoryStorage(library=LIBRARY)
    await storage.connect()
    path = await _memory_path(storage)
    room = Path(path).parent
    assert stat.S_IMODE(room.stat().st_mode) == 0o700
    assert len(_processes(f"unixsocket:{path}")) == 1
    twin = storage.clone()
    await storage.close()
    async with twin:
        assert await twin.call("echo", KEY, ["still here"]) == b"still here"
    assert not _processes(str(room))
    assert not room.exists()


async def _memory_path(storage: MemoryStorage) -> str:
    assert storage.socket is not None
    return storage.socket


@pytest.mark.crash
async def test_memory_ends_with_its_process() -> None:
    source = """
        import asyncio
        from glidemq_async.storage import MemoryStorage
        from tests.storage.small_library import LIBRARY
        async def main():
            storage = MemoryStorage(library=LIBRARY)
            await storage.connect()
            print(storage.socket, flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(source), stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None
    path = (await asyncio.wait_for(process.stdout.readline(), 20)).decode().strip()
    assert _processes(f"unixsocket:{path}")
    process.kill()
    await process.wait()
    room = Path(path).parent

    async def ended() -> bool:
        return not room.exists() and not _processes(str(room))

    await eventually(ended, "server and directory are gone")


@pytest.mark.crash
async def test_a_dead_memory_server_is_unavailable() -> None:
    storage = MemoryStorage(library=LIBRARY)
    await storage.connect()
    assert storage.socket is not None
    [server] = _processes(f"unixsocket:{storage.socket}")
    os.kill(server, signal.SIGKILL)
    with pytest.raises(StorageUnavailable, match="is lost"):
        await storage.call("count", KEY, ["a"])
    await storage.close()


async def test_the_error_for_a_missing_binary_names_the_package(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    monkeypatch.setenv("GLIDEMQ_SERVER", str(directory / "nothing"))
    for url in ("memory://", directory.as_uri()):
        storage = open_storage(url)
        with pytest.raises(EmbeddedServerMissing, match="GLIDEMQ_SERVER"):
            await storage.connect()
        await storage.close()


async def test_another_binary_can_be_configured(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    from glidemq_async.storage.embedded.binary import find_server

    wrapper = directory / "my-server"
    wrapper.write_text(f'#!/bin/sh\ntouch {directory}/used\nexec {find_server()} "$@"\n')
    wrapper.chmod(0o700)
    monkeypatch.setenv("GLIDEMQ_SERVER", str(wrapper))
    async with _storage(directory / "data") as storage:
        assert await storage.call("count", KEY, ["a"]) == b"1"
    assert (directory / "used").exists()


async def test_a_deleted_socket_is_recreated_while_others_are_connected(directory: Path) -> None:
    async with _storage(directory) as connected:
        assert await connected.call("count", KEY, ["a"]) == b"1"
        Path(socket_path(str(directory))).unlink()  # noqa: ASYNC240
        async with _storage(directory) as newcomer:
            assert await newcomer.call("count", KEY, ["b"]) == b"2"
        assert await connected.call("count", KEY, ["c"]) == b"3"
        assert len(_keepers(directory)) == 1


async def test_a_socket_that_is_deleted_before_its_keeper_connects_is_recreated(directory: Path) -> None:
    path = socket_path(str(directory))
    async with _storage(directory) as connected:
        assert await connected.call("count", KEY, ["a"]) == b"1"
        [keeper] = _keepers(directory)
        os.kill(keeper, signal.SIGSTOP)
        # The keeper has to connect again. Clients may do so before it, and one of them may delete the socket.
        link = KeeperConnection(path)
        await asyncio.to_thread(link.ask, "CLIENT KILL TYPE normal SKIPME yes")
        link.close()
        Path(path).unlink()  # noqa: ASYNC240
        os.kill(keeper, signal.SIGCONT)
        async with _storage(directory) as newcomer:
            assert await newcomer.call("count", KEY, ["b"]) == b"2"
        assert _keepers(directory) == [keeper]


async def test_a_directory_that_others_may_write_is_refused(directory: Path) -> None:
    for mode in (0o777, 0o1777, 0o702):
        directory.chmod(mode)  # noqa: ASYNC240
        with pytest.raises(StorageUnavailable, match=rf"other users may write .* \(mode {mode:04o}\).*chmod go-w"):
            await _storage(directory).connect()
        assert _keepers(directory) == []
    directory.chmod(0o755)  # noqa: ASYNC240
    async with _storage(directory) as storage:
        assert await storage.call("count", KEY, ["a"]) == b"1"


@pytest.mark.parametrize(("members", "allowed"), [([], True), (["somebody"], False)])
async def test_a_group_that_may_write_must_be_the_users_own(
    directory: Path, members: list[str], allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = pwd.getpwuid(os.geteuid())
    group = grp.struct_group((user.pw_name, "x", user.pw_gid, members))

    def group_of(_gid: int) -> grp.struct_group:
        return group

    monkeypatch.setattr(grp, "getgrgid", group_of)
    os.chown(directory, -1, user.pw_gid)
    directory.chmod(0o770)  # noqa: ASYNC240
    if allowed:
        async with _storage(directory) as storage:
            assert await storage.call("count", KEY, ["a"]) == b"1"
    else:
        with pytest.raises(StorageUnavailable, match="other users may write"):
            await _storage(directory).connect()


async def test_a_directory_of_another_user_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(directory, 4712, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(StorageUnavailable, match="belongs to another user"):
        await _storage(directory).connect()


def test_a_relative_home_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLIDEMQ_URL", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "relative/home")
    with pytest.raises(ValueError, match=r"\$HOME is not an absolute path: 'relative/home'\. Give a URL"):
        open_storage()
