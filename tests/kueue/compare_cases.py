"""Shows where the scheduler decides other than Kueue did in recorded cases.

    python -m tests.kueue.compare_cases [SEED...]

With seeds: each case step by step up to the first difference. Otherwise the numbers of the cases that differ.
"""

from __future__ import annotations

import sys

from tests.kueue.case_server import Recording
from tests.kueue.case_simulation import simulate
from tests.kueue.case_states import States
from tests.kueue.random_cases import Case, generate
from tests.kueue.record_cases import load_recordings

Point = tuple[str, States]


def first_difference(case: Case, recording: Recording) -> int | None:
    """The number of the first observation that differs."""
    simulated = simulate(case, recording)
    for number, point in enumerate(recording.points):
        if number >= len(simulated) or simulated[number] != point:
            return number
    return None if recording.is_restless or len(simulated) == len(recording.points) else len(recording.points)


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
    print(f"{len(different)} of {len(compared)} cases differ: {different}")


if __name__ == "__main__":
    main()
