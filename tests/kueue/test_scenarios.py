"""The plane decides as Kueue does: the same scenarios, the same admissions, usage, conditions and messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.kueue.harness import SCRIPTS, Observation
from tests.kueue.peers import MISSING, has_kueue
from tests.kueue.record import run, run_on_kueue
from tests.kueue.scenarios import CONFIGURED_MODULES, MODULES, RECORDED, configuration_of, scripts_of
from tests.support.effort import FULL
from tests.support.kubernetes import Server
from tests.support.yard import Yard

_KUEUE: dict[str, list[Observation]] = json.loads(RECORDED.read_text())


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("kueue"), controllers="kueue,namespace-controller") as server:
        yield server


def _ids(modules: Iterable[ModuleType]) -> list[str]:
    return [module.__name__.rsplit(".", 1)[1] for module in modules]


@pytest.mark.timeout(900)  # dozens of scenarios, each with workloads of different seconds
@pytest.mark.parametrize("module", MODULES, ids=_ids(MODULES))
def test_plane_decides_as_kueue_does(plane: Server, module: ModuleType) -> None:
    scripts = scripts_of(module)
    observed = run(plane, scripts, _KUEUE)
    assert observed == {name: _KUEUE[name] for name in scripts}


@pytest.mark.timeout(300)
@pytest.mark.skipif(
    not FULL, reason="a plane for each configuration, and waiting for time limits: TORCHYARD_TESTS=full"
)
@pytest.mark.parametrize("module", CONFIGURED_MODULES, ids=_ids(CONFIGURED_MODULES))
def test_plane_with_a_configuration_decides_as_kueue_does(tmp_path: Path, module: ModuleType) -> None:
    file = tmp_path / "kueue.json"
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    file.write_text(json.dumps({**head, **(configuration_of(module) or {})}))
    scripts, flags = scripts_of(module), ("--queue-config", str(file))
    with Yard(tmp_path / "plane", controllers="kueue,namespace-controller", flags=flags) as server:
        observed = run(server, scripts, _KUEUE)
    assert observed == {name: _KUEUE[name] for name in scripts}


@pytest.mark.timeout(900)
@pytest.mark.skipif(not FULL, reason="minutes with the real Kueue: TORCHYARD_TESTS=full")
@pytest.mark.skipif(not has_kueue(), reason=MISSING)
def test_recorded_answers_are_those_of_kueue(tmp_path: Path) -> None:
    assert run_on_kueue(list(SCRIPTS), tmp_path) == _KUEUE
