"""Attacks on files: reading, changing, moving and describing files without permission."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
from pathlib import Path

from tests.executors.attacks.registry import SECRET, Target, attack, syscall


def holds_secret(path: str | int) -> bool:
    with open(path, encoding="utf-8") as file:
        return SECRET in file.read()


@attack()
def read_file(target: Target) -> object:
    return holds_secret(target.secret)


@attack()
def read_through_symlink(target: Target) -> object:
    link = Path(target.work, "symlink")
    link.symlink_to(target.secret)
    return holds_secret(str(link))


@attack()
def read_through_hard_link(target: Target) -> object:
    link = Path(target.work, "link")
    os.link(target.secret, link)
    return holds_secret(str(link))


@attack()
def read_through_proc_root(target: Target) -> object:
    return holds_secret(f"/proc/self/root{target.secret}")


@attack()
def read_from_its_directory(target: Target) -> object:
    os.chdir(target.outside)
    return holds_secret(os.path.relpath(target.secret))


@attack()
def read_by_climbing(target: Target) -> object:
    return holds_secret(f"{target.work}/../{os.path.relpath(target.secret, os.path.dirname(target.work))}")


@attack()
def read_by_opening_a_path_descriptor_again(target: Target) -> object:
    descriptor = os.open(target.secret, os.O_PATH)
    return holds_secret(f"/proc/self/fd/{descriptor}")


@attack()
def read_by_handle(target: Target) -> object:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    syscall("name_to_handle_at", -100, os.fsencode(target.secret), handle, ctypes.byref(mount), 0)
    where = os.open(target.work, os.O_RDONLY | os.O_DIRECTORY)
    return holds_secret(syscall("open_by_handle_at", where, handle, os.O_RDONLY))


@attack()
def read_leaked_descriptor(target: Target) -> object:
    return any(_leaks(int(name)) for name in os.listdir("/proc/self/fd"))


def _leaks(descriptor: int) -> bool:
    try:
        return SECRET.encode() in os.pread(descriptor, 100, 0)
    except OSError:
        return False


@attack()
def reopen_leaked_descriptor(target: Target) -> object:
    return holds_secret(f"/proc/self/fd/{target.leaked}")


@attack()
def read_the_settings_beside_the_application(target: Target) -> object:
    return holds_secret(f"{target.application}/.env")


@attack()
def list_directory(target: Target) -> object:
    return os.path.basename(target.secret) in os.listdir(target.outside)


@attack()
def watch_directory(target: Target) -> object:
    libc = ctypes.CDLL(None, use_errno=True)
    watcher = libc.inotify_init1(0)
    syscall("inotify_add_watch", watcher, os.fsencode(target.outside), 0x20)
    os.listdir(target.outside) if os.geteuid() == 0 else None
    os.close(os.open(target.secret, os.O_RDONLY))
    return select.select([watcher], [], [], 1)[0]


@attack()
def write_file(target: Target) -> object:
    return os.write(os.open(target.secret, os.O_WRONLY), b"changed")


@attack()
def write_a_readable_file(target: Target) -> object:
    return os.write(os.open(target.readable, os.O_RDWR), b"changed")


@attack()
def append_to_file(target: Target) -> object:
    return os.write(os.open(target.secret, os.O_WRONLY | os.O_APPEND), b"more")


@attack()
def write_through_symlink(target: Target) -> object:
    link = Path(target.work, "symlink")
    link.symlink_to(target.secret)
    return link.write_text("changed")


@attack()
def write_through_proc_descriptor(target: Target) -> object:
    descriptor = os.open(target.readable, os.O_RDONLY)
    return os.write(os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR), b"changed")


@attack()
def create_file(target: Target) -> object:
    return os.open(f"{target.outside}/new", os.O_CREAT | os.O_WRONLY)


@attack()
def truncate_file(target: Target) -> object:
    os.truncate(target.secret, 0)
    return os.stat(target.secret).st_size == 0


@attack()
def truncate_by_opening_to_read(target: Target) -> object:
    os.open(target.readable, os.O_RDONLY | os.O_TRUNC)
    return os.stat(target.readable).st_size == 0


@attack()
def move_file_away(target: Target) -> object:
    os.rename(target.secret, f"{target.work}/mine")
    return not os.path.exists(target.secret)


@attack()
def move_file_over(target: Target) -> object:
    mine = Path(target.work, "mine")
    mine.write_text("changed")
    os.rename(mine, target.secret)
    return not mine.exists()


@attack()
def exchange_files(target: Target) -> object:
    mine = Path(target.work, "mine")
    mine.write_text("changed")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(mine), -100, os.fsencode(target.secret), 2) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return holds_secret(str(mine))


@attack()
def remove_file(target: Target) -> object:
    os.unlink(target.secret)
    return not os.path.exists(target.secret)


@attack()
def link_out(target: Target) -> object:
    mine = Path(target.work, "mine")
    mine.write_text("planted")
    os.link(mine, f"{target.outside}/planted")
    return os.path.exists(f"{target.outside}/planted")


@attack()
def symlink_out(target: Target) -> object:
    os.symlink(target.work, f"{target.outside}/planted")
    return os.path.lexists(f"{target.outside}/planted")


@attack()
def make_directory(target: Target) -> object:
    os.mkdir(f"{target.outside}/planted")
    return os.path.isdir(f"{target.outside}/planted")


@attack()
def make_fifo(target: Target) -> object:
    os.mkfifo(f"{target.outside}/planted")
    return os.path.exists(f"{target.outside}/planted")


@attack()
def make_device(target: Target) -> object:
    os.mknod(f"{target.work}/null", 0o20666, os.makedev(1, 3))
    return os.path.exists(f"{target.work}/null")


@attack()
def change_mode(target: Target) -> object:
    os.chmod(target.secret, 0o777)
    return os.stat(target.secret).st_mode & 0o777 == 0o777


@attack()
def change_mode_of_a_readable_file(target: Target) -> object:
    os.fchmod(os.open(target.readable, os.O_RDONLY), 0o777)
    return os.stat(target.readable).st_mode & 0o777 == 0o777


@attack()
def change_mode_by_the_newest_call(target: Target) -> object:
    try:
        syscall("fchmodat2", -100, os.fsencode(target.secret), 0o777, 0)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return False
        raise
    return os.stat(target.secret).st_mode & 0o777 == 0o777


@attack()
def change_owner(target: Target) -> object:
    os.chown(target.secret, os.getuid(), os.getgid())
    return True


@attack()
def change_time(target: Target) -> object:
    os.utime(target.secret, (1, 1))
    return os.stat(target.secret).st_mtime == 1


@attack()
def change_attribute(target: Target) -> object:
    os.setxattr(target.secret, "user.mark", b"x")
    return os.getxattr(target.secret, "user.mark") == b"x"


@attack()
def change_flags(target: Target) -> object:
    import fcntl

    descriptor = os.open(target.readable, os.O_RDONLY)
    flags = bytearray(8)
    fcntl.ioctl(descriptor, 0x80086601, flags)
    fcntl.ioctl(descriptor, 0x40086602, struct.pack("L", struct.unpack("L", flags)[0] | 0x40))
    return True


@attack()
def read_the_environment_of_the_parent(target: Target) -> object:
    return Path(f"/proc/{os.getppid()}/environ").read_bytes()


@attack(read=["/proc"])
def read_the_environment_of_the_victim(target: Target) -> object:
    return SECRET.encode() in Path(f"/proc/{target.victim}/environ").read_bytes()


@attack(read=True)
def read_the_environment_of_the_victim_with_all_files(target: Target) -> object:
    return SECRET.encode() in Path(f"/proc/{target.victim}/environ").read_bytes()


@attack(read=True, write=True)
def write_the_memory_of_the_victim(target: Target) -> object:
    with open(f"/proc/{target.victim}/mem", "r+b", buffering=0) as memory:
        memory.seek(target.address)
        same = memory.read(8)
        memory.seek(target.address)
        return memory.write(same)


@attack(read=True)
def open_a_file_of_the_victim(target: Target) -> object:
    return os.open(f"/proc/{target.victim}/fd/0", os.O_RDONLY) >= 0


@attack()
def read_the_command_line_of_the_victim(target: Target) -> object:
    return Path(f"/proc/{target.victim}/cmdline").read_bytes()


@attack()
def ask_for_mercy(target: Target) -> object:
    Path("/proc/self/oom_score_adj").write_text("500")
    return True


@attack()
def lease_a_readable_file(target: Target) -> object:
    """Opening a leased file waits for the holder of the lease."""
    import fcntl

    fcntl.fcntl(os.open(target.readable, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
    return True


@attack()
def make_a_program_that_runs_as_its_owner(target: Target) -> object:
    os.umask(0)
    os.close(os.open(f"{target.work}/program", os.O_CREAT | os.O_WRONLY, 0o4755))
    return os.stat(f"{target.work}/program").st_mode & 0o4000


@attack()
def make_a_program_that_runs_as_its_group(target: Target) -> object:
    os.umask(0)
    os.mknod(f"{target.work}/program", 0o102755)
    return os.stat(f"{target.work}/program").st_mode & 0o2000


@attack(write=True, read=True)
def open_a_setting_of_the_kernel(target: Target) -> object:
    """Root needs no capability for that. Nothing is written."""
    return os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY) > 0


@attack()
def read_the_connections_of_the_machine(target: Target) -> object:
    return "local_address" in Path("/proc/self/net/tcp").read_text()


@attack()
def read_the_connections_by_the_thread(target: Target) -> object:
    return "local_address" in Path("/proc/thread-self/net/tcp").read_text()


@attack()
def read_the_mounts(target: Target) -> object:
    return Path("/proc/self/mountinfo").read_text()


@attack()
def read_keys_beside_code(target: Target) -> object:
    return holds_secret(f"{target.application}/id_rsa")


@attack()
def read_settings_inside_a_package(target: Target) -> object:
    return holds_secret(f"{target.application}/package/prod.env")


@attack()
def read_hidden_settings_inside_a_package(target: Target) -> object:
    return holds_secret(f"{target.application}/package/.env")


@attack()
def read_the_repository_of_a_package(target: Target) -> object:
    return holds_secret(f"{target.application}/package/.git/config")


@attack()
def read_keys_beside_a_package_of_packages(target: Target) -> object:
    return holds_secret(f"{target.application}/space/deploy/key.pem")
