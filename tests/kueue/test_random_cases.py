"""The scheduler decides as Kueue did in recorded random cases: who is admitted with which flavors, who is preempted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kueue.case_server import Recording, run_cases
from tests.kueue.case_simulation import simulate
from tests.kueue.case_states import States
from tests.kueue.compare_cases import KNOWN_DIFFERENCES, comparable_points, describe, first_difference
from tests.kueue.random_cases import FIRST_DEEP, FIRST_FAIR, generate
from tests.kueue.record_cases import load_recordings
from tests.support.effort import rounds
from tests.support.kubernetes import Server
from tests.support.yard import Yard

_UNRECORDED = 2000  # the first seed of cases without recordings
_RECORDINGS = load_recordings()
_CASES = {seed: generate(seed) for seed in _RECORDINGS}
_COMPARED = {
    seed: recording
    for seed, (_, recording) in _RECORDINGS.items()
    if not recording.refused and seed not in KNOWN_DIFFERENCES
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("cases"), controllers="kueue,namespace-controller") as server:
        yield server


def test_recordings_are_of_the_cases_that_the_generator_makes() -> None:
    assert {seed: digest for seed, (digest, _) in _RECORDINGS.items()} == {
        seed: case.digest for seed, case in _CASES.items()
    }


@pytest.mark.parametrize("part", range(10))
def test_scheduler_decides_as_kueue_did(part: int) -> None:
    different = [
        describe(_CASES[seed], recording)
        for seed, recording in _COMPARED.items()
        if seed % 10 == part and first_difference(_CASES[seed], recording) is not None
    ]
    assert not different, "\n\n".join(different)


def test_documented_differences_are_still_there() -> None:
    """Otherwise they are to be removed from the list, and perhaps from the documentation."""
    equal = [seed for seed in KNOWN_DIFFERENCES if first_difference(_CASES[seed], _RECORDINGS[seed][1]) is None]
    assert not equal


def test_scheduler_becomes_quiet_in_any_case() -> None:
    """Without recordings: no workload is tried again and again although nothing changes."""
    for first in (_UNRECORDED, FIRST_DEEP, *(FIRST_FAIR + 1000 * number for number in range(3))):
        for seed in range(first, first + rounds(150 if first == _UNRECORDED else 30, 900)):
            simulate(generate(seed))


@pytest.mark.timeout(600)
def test_plane_decides_as_kueue_did(plane: Server) -> None:
    """Through the API server and the controllers, in cases where nothing depends on the order of uids."""
    definite = [seed for seed, recording in _COMPARED.items() if seed < FIRST_FAIR and _is_definite(recording)]
    seeds = definite[: rounds(15, 300)]
    cases = [_CASES[seed] for seed in seeds]
    observed = {seed: _workload_states(recording) for seed, recording in run_cases(plane.admin, cases).items()}
    assert observed == {seed: _workload_states(_COMPARED[seed]) for seed in seeds}


def _workload_states(recording: Recording) -> list[tuple[str, States]]:
    """Without the statuses of queues, which give way to admissions: the probes never end."""
    return [
        (label, {name: state for name, state in states.items() if name.startswith("w")})
        for label, states in recording.points
    ]


def _is_definite(recording: Recording) -> bool:
    """Whether no two workloads got quota in the same second, and all was compared."""
    times = [seconds for by_point in recording.reserved.values() for seconds in by_point.values()]
    is_whole = not recording.is_restless and comparable_points(recording) == recording.points
    return is_whole and len(times) == len(set(times))
