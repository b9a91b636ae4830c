"""Permitted work continues, and the limits that an older kernel lacks are reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.sandbox import filters, landlock, numbers, rules, support, unenforced

if sys.platform != "linux":
    pytest.skip("the sandbox is for Linux", allow_module_level=True)

if TYPE_CHECKING:
    from tests.executors.attack_runner import AttackRunner

VERSION = landlock.version()

needs_landlock = pytest.mark.skipif(VERSION < 6, reason="Landlock here is older than this test")


@pytest.mark.parametrize(
    ("usage", "permissions"),
    [
        ("use_the_library", {}),
        ("use_the_library", {"memory": "1GiB", "cpu": 60, "file_size": "10MiB", "open_files": 64}),
        ("use_the_application", {}),
        ("use_threads_and_loops", {}),
        ("use_files", {}),
        ("use_signals", {}),
        ("use_a_granted_port", {"network": ["granted"]}),
        ("use_the_network", {"network": True}),
        ("use_programs", {"subprocess": True}),
        ("use_everything", {"read": True, "write": True, "network": True, "environment": True, "subprocess": True}),
    ],
)
def test_granted_operations_work(attacks: AttackRunner, usage: str, permissions: dict[str, Any]) -> None:
    outcome = attacks.run(usage, permissions)
    assert (outcome.won, outcome.error) == (True, "")


@needs_landlock
def test_processes_are_permitted_up_to_the_limit(attacks: AttackRunner) -> None:
    permissions = {"subprocess": True, "processes": 12}
    outcome = attacks.run("use_as_many_processes_as_granted", permissions, nobody=True)
    assert (outcome.won, outcome.error) == (True, "")


@pytest.mark.parametrize("namespaces", [True, False])
def test_one_process_is_sufficient_for_a_job(attacks: AttackRunner, namespaces: bool) -> None:
    """The thread that receives the worker's messages does not count."""
    outcome = attacks.run("be_the_process_of_a_job", nobody=True, namespaces=namespaces)
    assert (outcome.won, outcome.error) == (True, "")


@needs_landlock
@pytest.mark.parametrize("attack", ["fork_bomb", "thread_bomb"])
def test_processes_are_limited_without_a_namespace_too(attacks: AttackRunner, attack: str) -> None:
    permissions = {"subprocess": True, "processes": 12}
    outcome = attacks.run(attack, permissions, nobody=True, namespaces=False)
    assert not outcome.won
    assert [line.partition(":")[0] for line in outcome.missing] == ["processes"]
    few = attacks.run("use_as_many_processes_as_granted", permissions, nobody=True, namespaces=False)
    assert few.won


def test_root_gets_a_notice_that_its_processes_are_not_limited(attacks: AttackRunner) -> None:
    if os.getuid() != 0:
        pytest.skip("for root")
    outcome = attacks.run("use_files", {"processes": 12})
    assert outcome.missing == [
        "processes: the kernel does not limit the processes of root; run the worker as another user"
    ]


@pytest.mark.parametrize("version", [0, 5])
@pytest.mark.parametrize(
    "attack",
    [
        *("kill_the_victim", "kill_by_thread_number", "kill_by_descriptor", "kill_by_input", "queue_a_signal"),
        *("connect_tcp", "connect_abstract", "change_mode", "fork", "trace_the_victim", "starve_the_victim"),
    ],
)
def test_the_filters_refuse_attacks_without_landlock(attacks: AttackRunner, attack: str, version: int) -> None:
    """Versions of Landlock that cover the same calls are left out, so only the filters can refuse them."""
    outcome = attacks.run(attack, {}, landlock=version)
    assert not outcome.won
    assert not outcome.damage


@needs_landlock
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("attack", ["truncate_file", "truncate_by_opening_to_read", "read_file", "move_file_away"])
def test_files_are_protected_under_older_landlock(attacks: AttackRunner, attack: str, version: int) -> None:
    outcome = attacks.run(attack, {}, landlock=version)
    assert not outcome.won
    assert not outcome.damage
    assert outcome.missing == []


@needs_landlock
@pytest.mark.parametrize("version", [1, 2, 5])
@pytest.mark.parametrize("usage", ["use_files", "use_the_library", "use_signals", "use_threads_and_loops"])
def test_older_landlock_permits_granted_operations(attacks: AttackRunner, usage: str, version: int) -> None:
    outcome = attacks.run(usage, {}, landlock=version)
    if usage == "use_files" and version == 1:
        # Its first version moves nothing between directories, as the documentation says.
        assert "Invalid cross-device link" in outcome.error
    else:
        assert (outcome.won, outcome.error) == (True, "")


@pytest.mark.parametrize(
    ("version", "permissions", "attack", "missing"),
    [
        (0, {}, "read_file", "read"),
        (0, {"read": True}, "write_file", "write"),
        (3, {"network": ["granted"]}, "connect_to_another_port", "network"),
        (5, {"subprocess": True}, "kill_the_victim_from_a_child", "signals"),
    ],
)
def test_missing_limits_are_reported_or_refused(
    attacks: AttackRunner, version: int, permissions: dict[str, Any], attack: str, missing: str
) -> None:
    result = attacks.run(attack, permissions, landlock=version)
    # The limit is really missing, and not only reported.
    assert result.won or result.damage
    assert any(line.startswith(missing) for line in result.missing)

    refused = attacks.run(attack, {**permissions, "strict": True}, landlock=version)
    assert "ExecutorError" in refused.error
    assert f"{missing}" in refused.error
    assert not refused.won
    assert not refused.damage


def test_strict_mode_accepts_a_kernel_with_all_limits(attacks: AttackRunner) -> None:
    if VERSION < 6:
        pytest.skip("Landlock here is older than this test")
    outcome = attacks.run("use_files", {"strict": True, "network": ["granted"], "memory": "1GiB"})
    assert (outcome.won, outcome.missing) == (True, [])


def test_a_granted_path_must_exist(attacks: AttackRunner) -> None:
    outcome = attacks.run("use_files", {"read": ["/nowhere/at/all"]})
    assert "ExecutorError" in outcome.error
    assert "'/nowhere/at/all', which does not exist" in outcome.error


def test_memory_that_is_already_in_use_counts_against_the_limit(attacks: AttackRunner) -> None:
    assert "grant more" in attacks.run("use_files", {"memory": "32MiB"}).error


@pytest.mark.parametrize(
    ("attack", "permissions", "advice"),
    [
        ("read_file", {}, "grant Permissions(read=["),
        ("write_file", {}, "grant Permissions(write=["),
        ("write_a_readable_file", {}, "grant Permissions(write=["),
        ("remove_file", {}, "grant Permissions(write=["),
        ("move_file_over", {}, "secret.txt"),
        ("list_directory", {}, "grant Permissions(read=["),
        ("change_mode", {}, "grant Permissions(write=True), as a list of paths is not enough"),
        ("connect_tcp", {}, "grant Permissions(network=True)"),
        ("connect_to_another_port", {"network": ["granted"]}, "grant Permissions(network=["),
        ("send_udp", {"network": ["granted"]}, "grant Permissions(network=True) to allow all sockets"),
        ("fork", {}, "grant Permissions(subprocess=True)"),
        ("start_a_program", {}, "grant Permissions(subprocess=True)"),
        ("kill_the_victim", {}, "no permission allows others"),
        ("read_the_environment_of_the_parent", {}, "no permission allows it"),
        ("kill_by_input", {}, "Operation not permitted: the permissions of the job do not allow this operation"),
        ("resolve_a_name", {}, "grant Permissions(network=True)"),
        ("fail_far_away", {}, "grant Permissions(read=["),
        ("fail_in_a_group", {}, "grant Permissions(read=["),
    ],
)
@needs_landlock
def test_a_refusal_names_the_missing_permission(
    attacks: AttackRunner, attack: str, permissions: dict[str, Any], advice: str
) -> None:
    outcome = attacks.run(attack, permissions)
    assert outcome.denied is not None, outcome.error
    assert advice in outcome.denied


def test_other_errors_are_not_changed(attacks: AttackRunner) -> None:
    outcome = attacks.run("fail_otherwise", {})
    assert outcome.error == "FileNotFoundError: [Errno 2] No such file or directory: '/usr/nowhere'"
    assert outcome.denied is None


def test_a_process_with_threads_reports_missing_limits() -> None:
    program = (
        "import json, threading, sys\n"
        "from glidemq_async.executors import Permissions, sandbox\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "print(json.dumps(sandbox.apply(Permissions())))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert json.loads(done.stdout)[0].startswith("all permissions: the process has 2 threads")


def test_support_reports_the_limits_of_this_machine() -> None:
    found = {each.name: each for each in support()}
    assert found["limits"].available
    assert found["seccomp"].available
    assert found["landlock scope"].available == (VERSION >= 6)
    assert all(each.detail for each in found.values())


def test_support_reports_limits_that_do_not_apply_to_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    [found] = [each for each in support() if each.name == "user namespaces"]
    assert not found.available
    assert found.detail.startswith("an exact count of processes: ")


def test_a_memory_limit_is_missing_where_sockets_may_use_more() -> None:
    [missing] = unenforced(Permissions(memory="300MiB", open_files=40_000), 6, filtered=True)
    assert missing.startswith("memory: 40000 open files may hold")
    assert unenforced(Permissions(memory="300MiB"), 6, filtered=True) == []


def test_nothing_is_missing_when_everything_is_granted() -> None:
    granted = Permissions(read=True, write=True, network=True, subprocess=True)
    assert unenforced(granted, 6, filtered=True) == []
    assert unenforced(granted, 5, filtered=True) == ["signals to other processes of the user (needs Linux 6.12)"]
    assert [line.split()[0] for line in unenforced(granted, 0, filtered=True)] == ["memory", "signals"]
    assert len(unenforced(Permissions(), 0, filtered=False)) == 7


@pytest.mark.parametrize("architecture", sorted(numbers.NUMBERS))
def test_every_rule_names_a_known_call(architecture: str) -> None:
    everywhere = set(numbers.NUMBERS["x86_64"]) | set(numbers.NUMBERS["aarch64"])
    for permissions in (Permissions(), Permissions(subprocess=True, network=[443]), Permissions(network=True)):
        for version in (0, 6):
            found = rules.rules_for(permissions, version)
            assert {rule.call for rule in found} <= everywhere
            # The kernel takes 4,096 instructions of 8 bytes.
            assert len(filters.assemble(architecture, found)) < 4096 * 8
    assert max(numbers.NUMBERS[architecture].values()) <= numbers.LAST
    assert len(set(numbers.NUMBERS[architecture].values())) == len(numbers.NUMBERS[architecture])
