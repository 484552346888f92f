"""The plane accepts and refuses what Kueue does: the requests of `object_cases`, with Kueue's recorded answers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from tests.kueue.compare_objects import REASONS, compare, reason_to_differ
from tests.kueue.object_cases import all_cases
from tests.kueue.object_requests import run_object_cases, set_up
from tests.kueue.peers import MISSING, has_kueue
from tests.kueue.record_objects import load_recorded_objects
from tests.support.effort import FULL
from tests.support.kubernetes import Server
from tests.support.yard import Yard

_RECORDED = load_recorded_objects()
_STEP = 1 if FULL else 7  # a number that no list of values has as its length


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("objects"), controllers="kueue,namespace-controller") as server:
        set_up(server.admin)
        yield server


@pytest.mark.timeout(600)
def test_plane_accepts_and_refuses_what_kueue_does(plane: Server) -> None:
    recorded = list(islice(_RECORDED, 0, None, _STEP))
    observed = run_object_cases(plane.admin, [case for case, _ in recorded])
    differences = {
        case.key: (difference, reason_to_differ(case, answer))
        for case, answer in recorded
        if (difference := compare(answer, observed[case.key]))
    }
    assert not {key: difference for key, (difference, reason) in differences.items() if not reason}
    if _STEP == 1:
        assert {reason for _, reason in differences.values()} == REASONS, "the others are to be removed"


@pytest.mark.skipif(not has_kueue(), reason=MISSING)
def test_recorded_requests_are_those_of_the_schemas() -> None:
    assert [case for case, _ in _RECORDED] == list(all_cases())
