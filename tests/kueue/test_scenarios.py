"""The plane decides as Kueue does: the same scenarios, the same admissions, usage, conditions and messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.kueue.harness import SCRIPTS, Observation
from tests.kueue.peers import MISSING, has_kueue, kueue
from tests.kueue.record import run
from tests.kueue.scenarios import MODULES, RECORDED
from tests.support.effort import FULL
from tests.support.kubernetes import Server
from tests.support.yard import Yard

_KUEUE: dict[str, list[Observation]] = json.loads(RECORDED.read_text())


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("kueue"), controllers="kueue,namespace-controller") as server:
        yield server


def scripts_of(module: ModuleType) -> list[str]:
    return [name for name, script in SCRIPTS.items() if script.__module__ == module.__name__]


@pytest.mark.timeout(900)  # dozens of scenarios, each with workloads of different seconds
@pytest.mark.parametrize("module", MODULES, ids=[module.__name__.rsplit(".", 1)[1] for module in MODULES])
def test_plane_decides_as_kueue_does(plane: Server, module: ModuleType) -> None:
    scripts = scripts_of(module)
    observed = run(plane, scripts, _KUEUE)
    assert observed == {name: _KUEUE[name] for name in scripts}


@pytest.mark.timeout(900)
@pytest.mark.skipif(not FULL, reason="minutes with the real Kueue: TORCHYARD_TESTS=full")
@pytest.mark.skipif(not has_kueue(), reason=MISSING)
def test_recorded_answers_are_those_of_kueue(tmp_path: Path) -> None:
    with kueue(tmp_path) as server:
        assert run(server, list(SCRIPTS)) == _KUEUE
