"""The controllers of workloads do in every history what the real kube-controller-manager does.

What the real one does is recorded. The full run compares the records with a real one; with TORCHYARD_RECORD set it
records them again.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.controllers.workload.histories import HISTORIES
from tests.controllers.workload.runner import (
    Player,
    differences,
    load,
    namespace,
    nodes,
    play,
    save,
    until_quiet,
)
from tests.support import effort
from tests.support import kubernetes as real
from tests.support.kubernetes import Kubernetes

from torchyard.api.objects import Object
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import load as load_kubeconfig
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

_SECONDS = 60
_POINTS = load()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    # Nothing may bind or delete pods here but the controllers under test.
    controllers = "*,-scheduler,-node-lifecycle-controller,-taint-eviction-controller,-pod-garbage-collector-controller"
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers=controllers, node=False)) as plane:
        client = plane.client("test")
        await nodes(client)
        yield client


async def _compare(client: Client, name: str) -> dict[str, Any]:
    """The differences at the first point that does not become as recorded."""
    expected = _POINTS[name]

    async def settle(player: Player, number: int) -> Object:
        described: Object = {}
        end = asyncio.get_running_loop().time() + _SECONDS
        while asyncio.get_running_loop().time() < end:
            described = await player.describe()
            if described == expected[number]:
                return described
            await asyncio.sleep(0.02)
        raise AssertionError(
            json.dumps({str(HISTORIES[name][number]): differences(expected[number], described)}, indent=1)
        )

    player = Player(client, await namespace(client, f"history-{name}"))
    try:
        await play(player, HISTORIES[name], settle)
    except AssertionError as error:
        return {name: str(error)}
    return {}


@pytest.mark.timeout(300)
async def test_every_history_has_the_recorded_quiet_points(client: Client) -> None:
    assert HISTORIES.keys() == _POINTS.keys()
    results = await asyncio.gather(*(_compare(client, name) for name in HISTORIES))
    failed = {name: text for result in results for name, text in result.items()}
    assert not failed, "\n".join(f"{name}: {text}" for name, text in failed.items())


@pytest.mark.cluster
@pytest.mark.timeout(1800)
async def test_the_recorded_quiet_points_are_those_of_a_real_controller_manager(
    kubernetes_assets: Path, tmp_path: Path
) -> None:
    is_recording = bool(os.environ.get("TORCHYARD_RECORD"))
    if not effort.FULL and not is_recording:
        pytest.skip("compared with a real one in the full run only")
    if not real.has("kube-controller-manager"):
        pytest.skip("this Kubernetes has no kube-controller-manager")
    with Kubernetes(tmp_path / "kube", controllers="*") as server:
        client = Client(HttpTransport(load_kubeconfig(server.kubeconfig), user_agent="test"), manager="test")
        await nodes(client)
        limit = asyncio.Semaphore(6)

        async def points(name: str) -> list[Object]:
            async with limit:
                player = Player(client, await namespace(client, f"history-{name}"))
                return await play(player, HISTORIES[name], until_quiet)

        played = dict(zip(HISTORIES, await asyncio.gather(*map(points, HISTORIES)), strict=True))
        await client.close()
    if is_recording:
        save(played)
        return
    different = {
        f"{name} {number}": differences(expected, actual)
        for name, expected_points in _POINTS.items()
        for number, (expected, actual) in enumerate(zip(expected_points, played[name], strict=True))
        if expected != actual
    }
    assert not different
