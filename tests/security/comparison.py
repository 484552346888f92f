"""Compares the verdicts of a plane with those of a real node: never laxer, and equal but for declared differences."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.security.escape_runner import Verdicts

RECORDED = Path(__file__).parent / "data" / "containerd.json"
_REFUSALS = ("denied", "absent", "masked", "killed")


@dataclass(frozen=True)
class Difference:
    """Verdicts that differ for a reason; the patterns match as those of file names do. The plane is the stricter one.

    `may_be_laxer`: what the recorded node refuses reaches nothing outside the pod, or a newer containerd allows it.
    """

    cases: tuple[str, ...]
    reason: str
    contexts: tuple[str, ...] = ("*",)
    may_be_laxer: bool = False

    def covers(self, context: str, case: str) -> bool:
        return any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases) and any(
            fnmatch.fnmatchcase(context, pattern) for pattern in self.contexts
        )


def recorded() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(RECORDED.read_text())
    return record


def write_record(record: dict[str, Any]) -> None:
    """One line per verdict, so that a change of the record shows which."""
    lines = [f'"versions": {json.dumps(record["versions"], sort_keys=True)}']
    for part in ("pods", "verdicts"):
        lines.append(f'"{part}": {_block(record[part])}')
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _block(value: dict[str, Any]) -> str:
    entries = [
        f"{json.dumps(key)}: {_block(entry) if _is_context(entry) else json.dumps(entry, sort_keys=True)}"
        for key, entry in sorted(value.items())
    ]
    return "{\n" + ",\n".join(entries) + "\n}"


def _is_context(entry: Any) -> bool:
    return isinstance(entry, dict) and len(entry) > 10


def is_same_kernel(record: dict[str, Any]) -> bool:
    """Whether this machine has the kernel of the recorded one: its files, system calls and errors."""
    versions = record["versions"]
    here = (os.uname().machine, *os.uname().release.split(".")[:2])
    return here == (versions["machine"], *versions["kernel"].split(".")[:2])


# Topics in which the recorded node has nothing to refuse where its kernel lacks a file, a call or a protocol.
_OF_THE_KERNEL = ("proc.read", "proc.sysctl", "proc.trigger", "sysfs.", "mount.new", "syscalls.")
_LACKING = ("absent", "denied:ENOSYS", "denied:EAFNOSUPPORT", "denied:EPROTONOSUPPORT", "denied:ESOCKTNOSUPPORT")


def comparable(record: dict[str, Any]) -> dict[str, Verdicts]:
    """The recorded verdicts that say something about this machine's kernel."""
    verdicts: dict[str, Verdicts] = record["verdicts"]
    if is_same_kernel(record):
        return verdicts
    return {
        context: {
            case: verdict
            for case, verdict in cases.items()
            if not (case.startswith(_OF_THE_KERNEL) and verdict in _LACKING)
            and not case.startswith("sweep.")
            and not (context == "privileged" and isinstance(verdict, list))
        }
        for context, cases in verdicts.items()
    }


def is_refusal(verdict: Any) -> bool:
    return isinstance(verdict, str) and verdict.startswith(_REFUSALS)


def is_laxer(case: str, real: Any, ours: Any) -> bool:
    """Whether a pod can do here what it cannot do on the real node."""
    if ours == real or is_refusal(ours):
        return False
    if isinstance(real, list) and isinstance(ours, list):
        return not set(ours) <= set(real)
    if case == "sweep.every_number":
        return bool({*real["EPERM"], *real["ENOSYS"]} - {*ours["EPERM"], *ours["ENOSYS"]} - NEWER_CALLS)
    if case.startswith("capability.status:Cap"):
        return bool(int(ours, 16) & ~int(real, 16))
    if case in ("capability.status:Seccomp", "capability.status:NoNewPrivs"):
        return int(ours) < int(real)
    if case == "capability.set_user_id_program":
        return str(ours) == "0"
    if case.startswith("namespace.of:"):
        return str(ours) != "its own"
    return True


# x86-64: name_to_handle_at, process_vm_readv, process_vm_writev, and calls that the recorded containerd does not know:
# set_mempolicy_home_node, cachestat, fchmodat2, the futex calls, mseal, the extended-attribute calls on descriptors.
NEWER_CALLS = {303, 310, 311, 450, 451, 452, 454, 455, 456, 462, 463, 464, 465, 466}


def laxer(real: dict[str, Verdicts], ours: dict[str, Verdicts], declared: Iterable[Difference] = ()) -> dict[str, Any]:
    """The cases in which the plane allows more: (real node, plane)."""
    accepted = [difference for difference in declared if difference.may_be_laxer]
    return {
        key: pair for key, pair in differences(real, ours, accepted).items() if is_laxer(key.partition("/")[2], *pair)
    }


def differences(real: dict[str, Verdicts], ours: dict[str, Verdicts], declared: Iterable[Difference]) -> dict[str, Any]:
    """The cases with unequal verdicts that no declaration covers: (real node, plane)."""
    return {
        f"{context}/{case}": (verdict, ours[context].get(case))
        for context, verdicts in real.items()
        if context in ours
        for case, verdict in verdicts.items()
        if verdict != ours[context].get(case) and not any(difference.covers(context, case) for difference in declared)
    }
