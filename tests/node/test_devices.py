"""Who gets which GPU or MIG slice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.node import support
from tests.node.conftest import running_node

from torchyard.api.errors import YardError
from torchyard.api.gvr import PODS
from torchyard.node.devices import nvidia
from torchyard.node.devices.nvidia import GPU, Device, DeviceAllocator, capacity, environment, labels

MIG = "nvidia.com/mig-1g.10gb"
DEVICES = [
    Device(GPU, "GPU-a", "NVIDIA H200", 143771),
    Device(GPU, "GPU-b", "NVIDIA H200", 143771),
    Device(MIG, "MIG-c", "NVIDIA A100", 9856),
]


def container(name: str, **amounts: int) -> dict[str, Any]:
    limits = {GPU if kind == "gpu" else MIG: str(count) for kind, count in amounts.items()}
    return {"name": name, "resources": {"limits": limits}}


def test_gpus_and_mig_slices_are_resources_of_their_own() -> None:
    assert capacity(DEVICES) == {GPU: "2", MIG: "1"}
    taken = DeviceAllocator(DEVICES, []).allocate([container("a", gpu=1), container("b", mig=1), container("c")])
    assert taken == {"a": ["GPU-a"], "b": ["MIG-c"]}


def test_a_node_has_the_labels_of_gpu_feature_discovery() -> None:
    assert labels(DEVICES) == {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": "3",
        "nvidia.com/gpu.product": "NVIDIA-H200",
        "nvidia.com/gpu.memory": "143771",
        "nvidia.com/mig.strategy": "mixed",
    }
    assert "nvidia.com/mig.strategy" not in labels(DEVICES[:2])
    assert labels([]) == {}


def test_a_container_sees_its_own_devices_by_uuid_or_none() -> None:
    assert environment(["MIG-c"])["CUDA_VISIBLE_DEVICES"] == "MIG-c"
    assert environment([]) == {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}


def test_a_device_is_allocated_once_and_can_be_released() -> None:
    devices = DeviceAllocator(DEVICES, [])
    first = devices.allocate([container("a", gpu=2)])
    with pytest.raises(YardError, match="Requested: 1, Available: 0") as refused:
        devices.allocate([container("b", gpu=1)])
    assert refused.value.code == "UnexpectedAdmissionError"
    devices.release(first)
    assert devices.allocate([container("b", gpu=1)]) == {"b": ["GPU-a"]}


def test_a_new_agent_knows_allocated_devices_from_the_pod_records() -> None:
    devices = DeviceAllocator(DEVICES, [{"a": ["GPU-a"]}, {}])
    assert devices.allocate([container("b", gpu=1)]) == {"b": ["GPU-b"]}


async def test_a_device_of_a_force_deleted_pod_is_allocated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    support.need_sandbox()
    monkeypatch.setattr(nvidia, "find", lambda: [nvidia.Device(nvidia.GPU, "GPU-1", "NVIDIA H200", 1000)])
    monkeypatch.setattr(nvidia, "device_files", list)
    async with running_node(tmp_path / "state") as node:
        asks = {"resources": {"limits": {nvidia.GPU: "1"}}}
        for name, script in (("holder", "sleep 60"), ("next", "echo $CUDA_VISIBLE_DEVICES")):
            await node.script(name, script, container=asks)
            await node.phase(name, "Running" if name == "holder" else "Pending")
        await node.client.delete(PODS, "holder", "default", grace=0)
        await node.phase("next", "Succeeded")
        assert await node.log("next") == "GPU-1\n"
