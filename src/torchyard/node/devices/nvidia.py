"""NVIDIA GPUs and their MIG slices, by UUID, through the vendor's own library if it is installed."""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.api import quantity
from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages

log = logging.getLogger(__name__)

GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Device:
    resource: str  # nvidia.com/gpu, or nvidia.com/mig-1g.10gb
    uuid: str
    product: str
    memory_mib: int


def find() -> list[Device]:
    """Every device that can be allocated. A GPU in MIG mode is allocated in slices only."""
    try:
        import pynvml
    except ImportError:
        return _query_nvidia_smi()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
        return [device for handle in handles for device in _devices_of(pynvml, handle)]
    except pynvml.NVMLError as error:
        log.warning("cannot list GPUs: error=%r", str(error))
        return []
    finally:
        pynvml.nvmlShutdown()


def _query_nvidia_smi() -> list[Device]:
    """Without the library: the driver's own program, which does not list MIG slices."""
    program = shutil.which("nvidia-smi")
    if not program:
        return []
    query = ["--query-gpu=uuid,name,memory.total,mig.mode.current", "--format=csv,noheader,nounits"]
    result = subprocess.run([program, *query], capture_output=True, text=True, timeout=30, check=False)
    rows = [[word.strip() for word in line.split(",")] for line in result.stdout.splitlines()]
    whole = [row for row in rows if len(row) == 4 and row[3] != "Enabled"]
    if len(whole) < len(rows):
        log.warning(
            "GPU in MIG mode ignored: install nvidia-ml-py to allocate its slices: count=%d", len(rows) - len(whole)
        )
    return [Device(GPU, uuid, product, int(memory)) for uuid, product, memory, _ in whole]


def _devices_of(library: Any, handle: Any) -> list[Device]:
    product = _text(library.nvmlDeviceGetName(handle))
    try:
        if library.nvmlDeviceGetMigMode(handle)[0]:
            return _slices(library, handle, product)
    except library.NVMLError:
        pass  # a GPU without MIG
    memory = int(library.nvmlDeviceGetMemoryInfo(handle).total) >> 20
    return [Device(GPU, _text(library.nvmlDeviceGetUUID(handle)), product, memory)]


def _slices(library: Any, handle: Any, product: str) -> list[Device]:
    slices = []
    for number in range(library.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = library.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except library.NVMLError:
            continue
        attributes = library.nvmlDeviceGetAttributes(part)
        memory = int(attributes.memorySizeMB)
        profile = f"mig-{attributes.gpuInstanceSliceCount}g.{round(memory / 1024)}gb"
        slices.append(Device(f"nvidia.com/{profile}", _text(library.nvmlDeviceGetUUID(part)), product, memory))
    return slices


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def capacity(devices: Iterable[Device]) -> dict[str, str]:
    counts: dict[str, int] = {}
    for device in devices:
        counts[device.resource] = counts.get(device.resource, 0) + 1
    return {resource: str(count) for resource, count in counts.items()}


def labels(devices: list[Device]) -> dict[str, str]:
    """The labels of NVIDIA's GPU feature discovery, so that a nodeSelector of another cluster works here."""
    if not devices:
        return {}
    first = devices[0]
    product = first.product.replace(" ", "-")
    # MIG slices are resources of their own: that is the strategy `mixed`.
    strategy = {"nvidia.com/mig.strategy": "mixed"} if any(device.resource != GPU for device in devices) else {}
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": str(len({device.uuid for device in devices})),
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": str(first.memory_mib),
        **strategy,
    }


def requested(container: Object) -> dict[str, int]:
    """Device counts of one container by resource. Limits take precedence, as for every extended resource."""
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {name: quantity.parse(str(text)).value for name, text in amounts.items() if name.startswith("nvidia.com/")}


class DeviceAllocator:
    """Which container has which device. The records of the pods hold it, so that a new agent knows it too."""

    def __init__(self, devices: list[Device], allocated: Iterable[Mapping[str, list[str]]]) -> None:
        self._devices = devices
        self._used = {uuid for devices_of in allocated for uuids in devices_of.values() for uuid in uuids}

    def allocate(self, containers: Iterable[Object]) -> dict[str, list[str]]:
        """Devices for each container, all or none."""
        allocated: dict[str, list[str]] = {}
        used = set(self._used)
        for container in containers:
            for resource, count in requested(container).items():
                free = [
                    device.uuid for device in self._devices if device.resource == resource and device.uuid not in used
                ]
                if len(free) < count:
                    raise YardError(
                        messages.devices_unavailable(resource, requested=count, available=len(free)),
                        code=messages.REASON_ADMISSION_ERROR,
                    )
                allocated.setdefault(container["name"], []).extend(free[:count])
                used.update(free[:count])
        self._used = used
        return allocated

    def release(self, devices: Mapping[str, list[str]]) -> None:
        for uuids in devices.values():
            self._used.difference_update(uuids)


def environment(uuids: list[str]) -> dict[str, str]:
    """The variables of a container: its own devices, or explicitly none."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(uuids), "NVIDIA_VISIBLE_DEVICES": ",".join(uuids) or "void"}


def device_files() -> list[Path]:
    """The driver's device files. CUDA_VISIBLE_DEVICES says which of the GPUs a container may use."""
    return sorted(Path("/dev").glob("nvidia*"))
