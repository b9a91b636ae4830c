"""The filters alone, on both instruction sets: the program follows the rules for every call."""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from functools import cache
from itertools import product

import pytest

from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.sandbox.filters import Rule, assemble
from glidemq_async.executors.sandbox.numbers import LAST, NUMBERS
from glidemq_async.executors.sandbox.rules import rules_for

ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003
GRANTS = [
    Permissions(),
    Permissions(subprocess=True, network=[443]),
    Permissions(network=True, read=True, write=True, subprocess=True),
]


@cache
def decoded(program: bytes) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("HBBI", program))


def run(program: bytes, architecture: int, number: int, arguments: Sequence[int]) -> int:
    """Interpret a program as the kernel does; return the errno, 0 when the call is permitted."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *(each & 2**64 - 1 for each in arguments))
    code = decoded(program)
    value = position = 0
    while True:
        kind, then, other, constant = code[position]
        position += 1
        if kind == 0x20:
            value = struct.unpack_from("<I", data, constant)[0]
        elif kind == 0x54:
            value &= constant
        elif kind == 0x05:
            position += constant
        elif kind == 0x06:
            assert constant == 0x7FFF0000 or constant >> 16 == 5
            return 0 if constant == 0x7FFF0000 else constant & 0xFFFF
        else:
            fits = {0x15: value == constant, 0x25: value > constant, 0x35: value >= constant}[kind]
            position += then if fits else other


def judged(rules: Sequence[Rule], call: str, arguments: Sequence[int]) -> int:
    """Return the verdict of the rules."""
    for rule in rules:
        if rule.call != call:
            continue
        if rule.argument is None:
            return rule.error
        found = (arguments[rule.argument] & 0xFFFFFFFF & rule.mask) in rule.values
        if found != rule.unless:
            return rule.error
    return 0


@pytest.mark.parametrize("version", [0, 6])
@pytest.mark.parametrize("permissions", GRANTS, ids=["nothing", "some", "all"])
@pytest.mark.parametrize("architecture", sorted(NUMBERS))
def test_the_program_follows_the_rules(architecture: str, permissions: Permissions, version: int) -> None:
    rules = rules_for(permissions, version)
    program = assemble(architecture, rules)
    for call, number in NUMBERS[architecture].items():
        interesting = {value for rule in rules if rule.call == call for value in rule.values}
        tried = sorted({0, -1, *interesting, *(value | 1 << 32 for value in interesting)})
        for first, second in product(tried, repeat=2):
            arguments = [first, second, first, second, first, second]
            found = run(program, ARCHITECTURE[architecture], number, arguments)
            assert found == judged(rules, call, arguments), (call, arguments)


@pytest.mark.parametrize("architecture", sorted(NUMBERS))
def test_other_call_tables_and_newer_calls_are_refused(architecture: str) -> None:
    program = assemble(architecture, rules_for(Permissions(), 6))
    ours = ARCHITECTURE[architecture]
    nothing = [0] * 6
    assert run(program, I386, 20, nothing) == errno.EPERM
    assert run(program, ours, 0x40000000 | 39, nothing) == errno.EPERM
    assert run(program, ours, LAST + 1, nothing) == errno.ENOSYS
    assert run(program, ours, LAST, nothing) == errno.EPERM
    assert run(program, ours, NUMBERS[architecture]["getpid"], nothing) == 0


def test_calls_are_refused_by_their_arguments() -> None:
    """Spot checks against numbers of the kernel, not of the rules."""
    x86 = ARCHITECTURE["x86_64"]
    nothing = assemble("x86_64", rules_for(Permissions(), 6))
    programs = assemble("x86_64", rules_for(Permissions(subprocess=True), 6))
    clone, ioctl, socketpair, prlimit = 56, 16, 53, 302
    thread = 0x3D0F00
    assert run(nothing, x86, clone, [thread, 0, 0, 0, 0, 0]) == 0
    assert run(nothing, x86, clone, [17, 0, 0, 0, 0, 0]) == errno.EPERM
    assert run(programs, x86, clone, [0x4000 | 0x100 | 17, 0, 0, 0, 0, 0]) == 0
    assert run(programs, x86, clone, [0x10000000 | 17, 0, 0, 0, 0, 0]) == errno.EPERM
    assert run(nothing, x86, ioctl, [0, 0x5401, 0, 0, 0, 0]) == 0
    assert run(nothing, x86, ioctl, [0, 0x5412 | 1 << 32, 0, 0, 0, 0]) == errno.EPERM
    assert run(nothing, x86, socketpair, [1, 1 | 0x80800, 0, 0, 0, 0]) == 0
    assert run(nothing, x86, socketpair, [1, 2, 0, 0, 0, 0]) == errno.EPERM
    assert run(nothing, x86, prlimit, [0, 7, 0, 0, 0, 0]) == 0
    assert run(nothing, x86, prlimit, [1234, 7, 0, 0, 0, 0]) == errno.EPERM
