"""How busy the GPUs of containers are: what the driver says, and nothing where it says nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchyard.cli import top
from torchyard.core.samples.owners import sampled_jobs
from torchyard.core.samples.table import SampleTable
from torchyard.core.samples.usage import record_usage
from torchyard.kube.job_lookup import KINDS, JobHandle
from torchyard.node.devices.utilization import DeviceUse, UtilizationReader
from torchyard.node.resources.metrics import ResourceMetrics
from torchyard.node.shim.record_types import PodRecord

GPU, GPU_MEMORY = "nvidia.com/gpu", "nvidia.com/gpu.memory"


class NVMLError(Exception):
    pass


class FakeLibrary:
    """Knows two GPUs and a MIG slice, of which the driver says no utilisation."""

    NVMLError = NVMLError
    initialized = 0

    def nvmlInit(self) -> None:
        self.initialized += 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid == "GPU-gone":
            raise NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        if handle.startswith("MIG"):
            raise NVMLError("Not Supported")
        return SimpleNamespace(gpu=73 if handle == "GPU-a" else 0)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(used=1 << 30)


def test_the_library_is_loaded_once_and_only_for_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeLibrary()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    reader = UtilizationReader()
    assert reader.read([]) == {} and library.initialized == 0
    expected = {"GPU-a": DeviceUse(0.73, 1 << 30), "MIG-c": DeviceUse(None, 1 << 30)}
    for _ in range(2):
        assert reader.read(["GPU-a", "MIG-c", "GPU-gone"]) == expected
    assert library.initialized == 1


def test_without_the_library_the_program_of_the_driver_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert UtilizationReader().read(["GPU-a"]) == {}
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU-a, 73, 1024'\necho 'GPU-b, [N/A], [N/A]'\necho noise\n")
    program.chmod(0o755)
    use = UtilizationReader().read(["GPU-a", "GPU-b"])
    assert use == {"GPU-a": DeviceUse(0.73, 1 << 30), "GPU-b": DeviceUse(None, None)}


def pod_metrics(tmp_path: Path, devices: list[str]) -> dict[str, Any]:
    metrics = ResourceMetrics(tmp_path)
    metrics.sample()
    record: PodRecord = {"uid": "u", "name": "mnist-worker-0", "namespace": "default", "devices": {"pytorch": devices}}  # type: ignore[typeddict-item]
    metrics._owners = {"u/pytorch": (record, "pytorch")}
    metrics._gpu_use = {
        "GPU-a": DeviceUse(0.73, 1 << 30),
        "GPU-b": DeviceUse(0.0, 1 << 20),
        "MIG-c": DeviceUse(None, 0),
    }
    (item,) = metrics.pods()
    return item


@pytest.mark.parametrize(
    ("devices", "usage", "shown"),
    [
        (["GPU-a"], {GPU: "730m", GPU_MEMORY: "1048576Ki"}, ("73%", "1024Mi")),
        (["GPU-a", "GPU-b"], {GPU: "730m", GPU_MEMORY: "1049600Ki"}, ("36%", "1025Mi")),
        (["GPU-b"], {GPU: "0m", GPU_MEMORY: "1024Ki"}, ("0%", "1Mi")),
        (["MIG-c"], {GPU_MEMORY: "0Ki"}, ("unknown", "0Mi")),
        (["GPU-a", "GPU-gone"], {}, ("unknown", "unknown")),
    ],
)
def test_what_is_not_known_is_not_zero(
    tmp_path: Path, devices: list[str], usage: dict[str, str], shown: tuple[str, str]
) -> None:
    item = pod_metrics(tmp_path, devices)
    (container,) = item["containers"]
    assert {name: value for name, value in container["usage"].items() if name.startswith("nvidia")} == usage
    table = SampleTable()
    record_usage(table, {**item, "metadata": {**item["metadata"], "labels": LABELS}}, 1.0)
    series = table.document(sampled_jobs("default", "pytorchjobs.kubeflow.org", "mnist"), 0.0)["series"]
    names = {each["name"] for each in series}
    assert names - {"cpu", "memory"} == {CURVES[name] for name in usage}
    row = top._for_people(top._row(JOB, pod(len(devices)), top.usage_of_pods([item])))
    assert (row["gpuUse"], row["gpuMemory"]) == shown


def test_a_replica_without_gpus_uses_none(tmp_path: Path) -> None:
    row = top._for_people(top._row(JOB, pod(0), top.usage_of_pods([pod_metrics(tmp_path, [])])))
    assert (row["gpus"], row["gpuUse"], row["gpuMemory"]) == (None, None, None)


LABELS = {"training.kubeflow.org/job-name": "mnist", "training.kubeflow.org/operator-name": "pytorchjob-controller"}
CURVES = {GPU: "gpu", GPU_MEMORY: "gpu_memory"}
JOB = JobHandle(KINDS["PyTorchJob"], {"kind": "PyTorchJob", "metadata": {"name": "mnist", "namespace": "default"}})


def pod(gpus: int) -> dict[str, Any]:
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    return {
        "metadata": {"name": "mnist-worker-0"},
        "spec": {"containers": [{"name": "pytorch", "resources": resources}]},
    }
