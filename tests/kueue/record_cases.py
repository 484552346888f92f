"""Runs random cases on the real Kueue and writes what was observed into `recorded_cases.json`, one case in a line.

    python -m tests.kueue.record_cases SEEDS...    (such as 7 or 100-199)

Recordings of other seeds stay as they are. Seeds of one call need the same configuration of Kueue.
A case that the server refuses, or that never becomes quiet, is kept with
that remark and compared no further. Kueue on a machine under load is slow now and then, so that an observation comes
too early. Then record the case again with few others: that waits longer.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.kueue.case_server import Recording, run_cases
from tests.kueue.peers import kueue
from tests.kueue.random_cases import Case, generate

RECORDED_CASES = Path(__file__).parent / "recorded_cases.json"
Object = dict[str, Any]
_FEW = 40
_LIMIT = 200  # seconds; cases that are not complete by then are left out


def load_recordings(path: Path = RECORDED_CASES) -> dict[int, tuple[str, Recording]]:
    """By seed: the digest of the case, and what Kueue did."""
    recordings: dict[int, tuple[str, Recording]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        entry = json.loads(line)
        seed, digest = entry.pop("seed"), entry.pop("digest")
        recordings[seed] = digest, _parse(entry)
    return recordings


def _parse(entry: Object) -> Recording:
    points = [(label, states) for label, states in entry.pop("points", [])]
    reserved = {
        name: {int(point): seconds for point, seconds in times.items()}
        for name, times in entry.pop("reserved", {}).items()
    }
    return Recording(points=points, reserved=reserved, **entry)


def store_recordings(recordings: dict[int, tuple[str, Recording]], path: Path = RECORDED_CASES) -> None:
    lines = []
    for seed, (digest, recording) in sorted(recordings.items()):
        entry = {key: part for key, part in asdict(recording).items() if part}
        entry["reserved"] = {name: times for name, times in recording.reserved.items() if times}
        lines.append(json.dumps({"seed": seed, "digest": digest, **entry}, separators=(",", ":")))
    path.write_text("\n".join(lines) + "\n")


def _parse_seeds(argument: str) -> range:
    first, _, last = argument.partition("-")
    return range(int(first), int(last or first) + 1)


def kueue_configuration(case: Case) -> Object | None:
    if case.fair_sharing is None:
        return None
    return {"fairSharing": {"preemptionStrategies": list(case.fair_sharing)}}


def main() -> None:
    cases = [generate(seed) for argument in sys.argv[1:] for seed in _parse_seeds(argument)]
    strategies = {case.fair_sharing for case in cases}
    if len(strategies) != 1:
        raise SystemExit("cases with and without fair sharing, or with other strategies: record them in several calls")
    started = time.monotonic()
    configuration = kueue_configuration(cases[0])
    with tempfile.TemporaryDirectory() as directory, kueue(Path(directory), configuration=configuration) as server:
        new = run_cases(server.admin, cases, quiet_rounds=1 if len(cases) > _FEW else 3, limit=_LIMIT)
    recordings = load_recordings()
    recordings |= {case.seed: (case.digest, new[case.seed]) for case in cases if case.seed in new}
    store_recordings(recordings)
    restless = [seed for seed, recording in new.items() if recording.is_restless]
    refused = {seed: recording.refused for seed, recording in new.items() if recording.refused}
    print(f"{len(new)} cases in {time.monotonic() - started:.0f} s; restless {restless}; refused {refused}")


if __name__ == "__main__":
    main()
