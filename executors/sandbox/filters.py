"""seccomp filters: rules on system calls and their arguments, assembled into a BPF program and loaded.

A refused call fails with EPERM and the process continues, so that Python raises a PermissionError.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from glidemq_async.executors.sandbox.kernel import machine, syscall
from glidemq_async.executors.sandbox.numbers import LAST, NUMBERS

_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32: Final = 0x40000000
_LOW_HALF: Final = 0xFFFFFFFF

_LOAD, _AND, _JUMP, _RETURN = 0x20, 0x54, 0x05, 0x06
_IF_EQUAL, _IF_ABOVE, _IF_AT_LEAST = 0x15, 0x25, 0x35
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW: Final = 0x7FFF0000
_FAIL: Final = 0x00050000
_SET_MODE_FILTER: Final = 1

_Instruction = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Rule:
    """Refuse a call. With `argument`, only if `argument & mask` is (or, with `unless`, is not) in `values`.

    `only` restricts the rule to one value of another argument. The filter compares the low 32 bits of an argument,
    because the kernel ignores the high bits of these arguments.
    """

    call: str
    argument: int | None = None
    values: tuple[int, ...] = ()
    mask: int = _LOW_HALF
    unless: bool = False
    only: tuple[int, int] | None = None
    error: int = errno.EPERM


def available() -> bool:
    """Return True if the system call numbers of this machine are known. Without them there are no filters."""
    return machine() in NUMBERS


def install(rules: Iterable[Rule]) -> None:
    """Apply the rules irrevocably to this thread and all that it starts. Needs no_new_privs. Raises OSError."""
    program = assemble(machine(), rules)
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    pointer = ctypes.create_string_buffer(header, len(header))
    syscall(NUMBERS[machine()]["seccomp"], _SET_MODE_FILTER, 0, ctypes.byref(pointer))


def assemble(architecture: str, rules: Iterable[Rule]) -> bytes:
    """Return the BPF program of the rules. Calls that this architecture does not have are skipped."""
    # Each rule loads the number again at its end, and the rules follow each other. A jump therefore never leaves its
    # own rule. A jump has only eight bits for its distance, and a program with one common "refuse" at its end would
    # exceed them.
    numbers = NUMBERS[architecture]
    code = _prologue(architecture)
    for rule in rules:
        if rule.call in numbers:
            body = _body(rule)
            code += [(_IF_EQUAL, 0, len(body), numbers[rule.call]), *body]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


# The program is a list of refused calls, and everything else is allowed. Such a list is only safe behind two checks.
# In other tables of system calls (32-bit entry, x32) the same number means another call, so their calls are refused.
# Calls above the last known number fail with ENOSYS, so a new kernel opens nothing. The C library takes ENOSYS for an
# older kernel and falls back to a call that the rules know.
def _prologue(architecture: str) -> list[_Instruction]:
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, _ARCHITECTURES[architecture]),
        _refuse(errno.EPERM),
        (_LOAD, 0, 0, _NUMBER),
        (_IF_AT_LEAST, 0, 1, _X32),
        _refuse(errno.EPERM),
        (_IF_ABOVE, 0, 1, LAST),
        _refuse(errno.ENOSYS),
    ]


def _refuse(error: int) -> _Instruction:
    return (_RETURN, 0, 0, _FAIL | error)


def _body(rule: Rule) -> list[_Instruction]:
    """Return the instructions for a matching number. They refuse, or load the number again and fall through."""
    if rule.argument is None:
        return [_refuse(rule.error)]
    code: list[_Instruction] = [(_LOAD, 0, 0, _ARGUMENTS + 8 * rule.argument), (_AND, 0, 0, rule.mask)]
    # A match jumps past the other values and past the instruction for "no match".
    code += [(_IF_EQUAL, len(rule.values) - index, 0, value) for index, value in enumerate(rule.values)]
    code += [_refuse(rule.error)] if rule.unless else [(_JUMP, 0, 0, 1), _refuse(rule.error)]
    if rule.only is not None:
        argument, value = rule.only
        code = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), (_IF_EQUAL, 0, len(code), value), *code]
    return [*code, (_LOAD, 0, 0, _NUMBER)]
