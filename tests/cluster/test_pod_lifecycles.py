"""Pods on Torchyard's node have the same lifecycle as on a kubelet.

The kubelet's lifecycles are recorded. TORCHYARD_REAL_NODE names the kubeconfig of a cluster whose node has a `busybox`
image: the records are then compared with it, or recorded again when TORCHYARD_RECORD is set.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cluster.pod_lifecycle_runner import RECORDED, differences, run_all
from tests.node import support

from torchyard.kube import kubeconfig
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.node.shutdown import stop_pods
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings


@pytest.fixture
async def real() -> AsyncIterator[Client]:
    named = os.environ.get("TORCHYARD_REAL_NODE", "")
    if not named:
        pytest.skip("no cluster with a real kubelet is named by TORCHYARD_REAL_NODE")
    transport = HttpTransport(kubeconfig.load(Path(named)), user_agent="lifecycles")
    yield Client(transport, manager="lifecycles")
    await transport.close()


@pytest.fixture
async def torchyard_client(tmp_path: Path) -> AsyncIterator[Client]:
    support.need_network()
    settings = PlaneSettings(state=tmp_path / "state", port=0, node=True, node_name="here")
    try:
        async with Plane(settings) as plane:
            assert plane.agent
            await plane.agent.ready.wait()
            yield plane.client("lifecycles")
    finally:
        await stop_pods(settings.state / "node")


@pytest.mark.timeout(900)
async def test_pod_lifecycles_match_the_recorded_kubelet(torchyard_client: Client) -> None:
    recorded = json.loads(RECORDED.read_text())
    assert differences(recorded, await run_all(torchyard_client, at_once=8, expected=recorded)) == {}


@pytest.mark.cluster
@pytest.mark.timeout(1200)
async def test_the_recorded_lifecycles_match_a_real_kubelet(real: Client) -> None:
    if os.environ.get("TORCHYARD_RECORD"):
        RECORDED.write_text(json.dumps(await run_all(real, at_once=4), indent=1, sort_keys=True) + "\n")
        return
    recorded = json.loads(RECORDED.read_text())
    assert differences(recorded, await run_all(real, at_once=4, expected=recorded)) == {}
