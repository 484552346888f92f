"""The plane decides as Kueue does: the same scenarios, the same admissions, usage, conditions and messages."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.kueue.harness import Observation
from tests.kueue.record import run
from tests.kueue.scenarios import RECORDED
from tests.support.yard import Yard

_KUEUE: dict[str, list[Observation]] = json.loads(RECORDED.read_text())


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Observation]]]:
    with Yard(tmp_path_factory.mktemp("kueue"), controllers="kueue,namespace-controller") as server:
        yield run(server, list(_KUEUE), _KUEUE)


@pytest.mark.parametrize("name", _KUEUE)
def test_plane_decides_as_kueue_does(observed: dict[str, list[Observation]], name: str) -> None:
    assert observed[name] == _KUEUE[name]
