"""Shows where the scheduler decides other than Kueue did in recorded cases.

    python -m tests.kueue.compare_cases [SEED...]

With seeds: each case step by step up to the first difference. Otherwise the numbers of the cases that differ.
"""

from __future__ import annotations

import re
import sys

from tests.kueue.case_server import Recording
from tests.kueue.case_simulation import simulate
from tests.kueue.case_states import States
from tests.kueue.random_cases import Case, generate
from tests.kueue.record_cases import load_recordings

Point = tuple[str, States]


# Cases that differ, each with the reason. The documentation has those that are explained.
_EVICTED_FIRST = "Kueue tries a workload that was just evicted before those that are inadmissible"
_STRICT_FIRST = "after a change, Kueue tries the heads of StrictFIFO queues before those that are inadmissible"
_FREED_QUOTA_IS_KEPT = "released quota is kept for the preemptor that waits for the rest of it"
_DEACTIVATED = "a deactivated workload holds its quota until its pods are gone"
_RETRIED_LATE = "Kueue does not retry a pending workload at once when its reclaimable pods change"
_NEXT_FLAVOR = "Kueue tries a StrictFIFO head every few milliseconds, by turns from its first and from its next flavor"
_SKIPPED = "Kueue finds workloads to preempt in every cycle, and then skips the preemptor as if it did not fit"
KNOWN_DIFFERENCES = {
    122: _EVICTED_FIRST,
    175: _FREED_QUOTA_IS_KEPT,
    293: _RETRIED_LATE,
    1005: _DEACTIVATED,
    1087: _FREED_QUOTA_IS_KEPT,
    11029: _SKIPPED,
    11073: _NEXT_FLAVOR,
    12062: _STRICT_FIRST,
}

_FIFTH_EVICTION = re.compile(r"~[5-9]|~\d\d")


def comparable_points(recording: Recording) -> list[Point]:
    """Without those from the fifth eviction of a workload on: Kueue lets workloads preempt each other without end."""
    for number, (_, states) in enumerate(recording.points):
        if any(_FIFTH_EVICTION.search(state) for state in states.values()):
            return recording.points[:number]
    return recording.points


def first_difference(case: Case, recording: Recording) -> int | None:
    """The number of the first observation that differs."""
    simulated, points = simulate(case, recording), comparable_points(recording)
    for number, point in enumerate(points):
        if number >= len(simulated) or simulated[number] != point:
            return number
    is_partial = recording.is_restless or len(points) < len(recording.points)
    return None if is_partial or len(simulated) == len(points) else len(points)


def describe(case: Case, recording: Recording) -> str:
    """The steps up to the first difference, with both observations there."""
    number, simulated = first_difference(case, recording), simulate(case, recording)
    lines = [str(operation) for operation in case.setup]
    steps = iter(case.steps)
    for index, (label, states) in enumerate(recording.points[: (number or 0) + 1]):
        step = label if label in ("setup", "end") or label.startswith("release") else str(next(steps))
        lines += [f"{index}: {step}", f"    Kueue {states}"]
        if index == number:
            lines.append(f"    ours  {simulated[index] if index < len(simulated) else None}")
    return "\n".join(lines).replace(case.prefix, "")


def main() -> None:
    recordings = load_recordings()
    seeds = list(map(int, sys.argv[1:]))
    if seeds:
        for seed in seeds:
            print(describe(generate(seed), recordings[seed][1]))
        return
    compared = {
        seed: recording
        for seed, (digest, recording) in recordings.items()
        if not recording.refused and digest == generate(seed).digest
    }
    different = [
        seed for seed, recording in compared.items() if first_difference(generate(seed), recording) is not None
    ]
    unknown = [seed for seed in different if seed not in KNOWN_DIFFERENCES]
    print(f"{len(different)} of {len(compared)} cases differ: {different}, of unknown reason: {unknown}")


if __name__ == "__main__":
    main()
