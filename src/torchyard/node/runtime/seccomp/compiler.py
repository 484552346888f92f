"""From a profile to a BPF program: the rules of each architecture become ranges of numbers, found by binary search.

The layout is that of libseccomp and runc: unknown architectures are killed, and calls newer than every call that the
profile names fail with ENOSYS instead of the default, so that the C library falls back to older ones.
"""

from __future__ import annotations

import struct
from itertools import groupby

from torchyard.node.runtime.seccomp.profile import Condition, Rule, SeccompProfile, SeccompProfileError
from torchyard.node.runtime.seccomp.syscall_table import ARCHITECTURES, X32_BIT, numbers

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant
_LOAD, _RETURN, _JUMP, _AND = 0x20, 0x06, 0x05, 0x54
_EQUAL, _GREATER, _GREATER_EQUAL = 0x15, 0x25, 0x35
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16
_KILL_PROCESS, _ALLOW, _LOG, _ENOSYS = 0x80000000, 0x7FFF0000, 0x7FFC0000, 0x00050000 | 38
_AUDIT = {
    "SCMP_ARCH_X86_64": 0xC000003E,
    "SCMP_ARCH_X86": 0x40000003,
    "SCMP_ARCH_AARCH64": 0xC00000B7,
    "SCMP_ARCH_ARM": 0x40000028,
}
_ARM_PRIVATE = 0xF0000
_LONGEST_JUMP, _LONGEST_PROGRAM = 255, 4096
_PASS, _FAIL = -1, -2  # jumps that are resolved once the length of a rule is known


def compile_profile(profile: SeccompProfile, machine: str) -> bytes:
    """The program as an array of `struct sock_filter`."""
    native, *others = ARCHITECTURES[machine]
    program: list[Instruction] = [(_LOAD, 0, 0, _ARCHITECTURE_OFFSET)]
    included = [native, *(name for name in others if name in profile.architectures)]
    for architecture in included:
        if architecture in _AUDIT:
            body = _architecture(profile, architecture, x32="SCMP_ARCH_X32" in included)
            program += [*_unless(_EQUAL, _AUDIT[architecture], len(body)), *body]
    program.append((_RETURN, 0, 0, _KILL_PROCESS))
    if len(program) > _LONGEST_PROGRAM:
        raise SeccompProfileError(f"the profile has {len(program)} instructions; {_LONGEST_PROGRAM} are allowed")
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _unless(comparison: int, constant: int, skipped: int) -> list[Instruction]:
    """Skip that many instructions unless the comparison is true."""
    if skipped <= _LONGEST_JUMP:
        return [(comparison, 0, skipped, constant)]
    return [(comparison, 1, 0, constant), (_JUMP, 0, 0, skipped)]


def _architecture(profile: SeccompProfile, architecture: str, *, x32: bool) -> list[Instruction]:
    ranges = _ranges(profile, architecture)
    if architecture == "SCMP_ARCH_X86_64":
        more = _ranges(profile, "SCMP_ARCH_X32") if x32 else [(0, [(_RETURN, 0, 0, _KILL_PROCESS)])]
        lowest = next(code for first, code in reversed(more) if first <= X32_BIT)
        ranges += [(X32_BIT, lowest), *((first, code) for first, code in more if first > X32_BIT)]
    return [(_LOAD, 0, 0, _NUMBER_OFFSET), *_search(ranges)]


def _ranges(profile: SeccompProfile, architecture: str) -> list[tuple[int, list[Instruction]]]:
    """(first number, code) of each range of numbers that are treated alike; together they cover all numbers."""
    table = numbers(architecture)
    rules: dict[int, list[Rule]] = {}
    for rule in profile.rules:
        for name in rule.names:
            if name in table:
                rules.setdefault(table[name], []).append(rule)
    default = [(_RETURN, 0, 0, profile.default)]
    code = {number: _call(of_call, default) for number, of_call in rules.items()}
    beyond = default if profile.default in (_ALLOW, _LOG) else [(_RETURN, 0, 0, _ENOSYS)]
    newest = max((number for number in code if number < _ARM_PRIVATE or number >= X32_BIT), default=0)
    starts: list[tuple[int, list[Instruction]]] = [(0, default), (newest + 1, beyond)]
    for number, instructions in sorted(code.items()):
        starts.append((number, instructions))
        if number + 1 not in code:
            starts.append((number + 1, beyond if number == newest else default))
    merged: dict[int, list[Instruction]] = {}
    for first, instructions in sorted(starts, key=lambda start: start[0]):
        merged[first] = instructions  # of two ranges with one start, the later is the one of a call
    return [next(group) for _, group in groupby(merged.items(), key=lambda item: item[1])]


def _search(ranges: list[tuple[int, list[Instruction]]]) -> list[Instruction]:
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    lower, upper = _search(ranges[:middle]), _search(ranges[middle:])
    return [*_unless(_GREATER_EQUAL, ranges[middle][0], len(upper)), *upper, *lower]


def _call(rules: list[Rule], default: list[Instruction]) -> list[Instruction]:
    """The code of one call: a rule without conditions decides, else the first whose conditions hold."""
    for rule in rules:
        if not rule.conditions:
            return [(_RETURN, 0, 0, rule.action)]
    code: list[Instruction] = []
    for rule in rules:
        code += _conditional(rule)
    return code + default


def _conditional(rule: Rule) -> list[Instruction]:
    parts = [_compare(condition) for condition in rule.conditions]
    end = sum(len(part) for part in parts) + 1
    code: list[Instruction] = []
    for part in parts:
        passed = len(code) + len(part)
        targets = {_PASS: passed, _FAIL: end}
        for operation, if_true, if_false, constant in part:
            after = len(code) + 1
            jumps = [targets[jump] - after if jump in targets else 0 for jump in (if_true, if_false)]
            code.append((operation, jumps[0], jumps[1], constant))
    return [*code, (_RETURN, 0, 0, rule.action)]


def _compare(condition: Condition) -> list[Instruction]:
    """A 64-bit comparison of two halves; the last instruction falls through when it holds."""
    offset = _ARGUMENTS_OFFSET + 8 * condition.index
    low, high = (_LOAD, 0, 0, offset), (_LOAD, 0, 0, offset + 4)
    value_high, value_low = condition.value >> 32, condition.value & 0xFFFFFFFF
    match condition.op:
        case "SCMP_CMP_EQ":
            return [high, (_EQUAL, 0, _FAIL, value_high), low, (_EQUAL, 0, _FAIL, value_low)]
        case "SCMP_CMP_NE":
            return [high, (_EQUAL, 0, _PASS, value_high), low, (_EQUAL, _FAIL, 0, value_low)]
        case "SCMP_CMP_MASKED_EQ":
            wanted_high, wanted_low = condition.value_two >> 32, condition.value_two & 0xFFFFFFFF
            return [
                *(high, (_AND, 0, 0, value_high), (_EQUAL, 0, _FAIL, wanted_high)),
                *(low, (_AND, 0, 0, value_low), (_EQUAL, 0, _FAIL, wanted_low)),
            ]
        case "SCMP_CMP_GT" | "SCMP_CMP_GE":
            last = _GREATER if condition.op == "SCMP_CMP_GT" else _GREATER_EQUAL
            decided = [(_GREATER, _PASS, 0, value_high), (_EQUAL, 0, _FAIL, value_high)]
            return [high, *decided, low, (last, 0, _FAIL, value_low)]
        case _:
            last = _GREATER_EQUAL if condition.op == "SCMP_CMP_LT" else _GREATER
            decided = [(_GREATER, _FAIL, 0, value_high), (_EQUAL, 0, _PASS, value_high)]
            return [high, *decided, low, (last, _FAIL, 0, value_low)]
