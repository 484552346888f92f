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

log = logging.getLogger(__name__)

GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Device:
    resource: str  # nvidia.com/gpu, or nvidia.com/mig-1g.10gb
    uuid: str
    product: str
    memory_mib: int


def find() -> list[Device]:
    """Every device that can be given away. A GPU in MIG mode is given in slices only."""
    try:
        import pynvml
    except ImportError:
        return _ask_program()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
        return [device for handle in handles for device in _devices_of(pynvml, handle)]
    except pynvml.NVMLError as failed:
        log.warning("the NVIDIA driver does not say which GPUs there are: %s", failed)
        return []
    finally:
        pynvml.nvmlShutdown()


def _ask_program() -> list[Device]:
    """Without the library, the driver's own program; it does not tell MIG slices apart."""
    program = shutil.which("nvidia-smi")
    if not program:
        return []
    query = ["--query-gpu=uuid,name,memory.total,mig.mode.current", "--format=csv,noheader,nounits"]
    answer = subprocess.run([program, *query], capture_output=True, text=True, timeout=30, check=False)
    rows = [[word.strip() for word in line.split(",")] for line in answer.stdout.splitlines()]
    whole = [row for row in rows if len(row) == 4 and row[3] != "Enabled"]
    if len(whole) < len(rows):
        log.warning("a GPU is in MIG mode: install nvidia-ml-py so that its slices can be given to pods")
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
    found = []
    for number in range(library.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = library.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except library.NVMLError:
            continue
        attributes = library.nvmlDeviceGetAttributes(part)
        memory = int(attributes.memorySizeMB)
        profile = f"mig-{attributes.gpuInstanceSliceCount}g.{round(memory / 1024)}gb"
        found.append(Device(f"nvidia.com/{profile}", _text(library.nvmlDeviceGetUUID(part)), product, memory))
    return found


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def capacity(devices: Iterable[Device]) -> dict[str, str]:
    counts: dict[str, int] = {}
    for device in devices:
        counts[device.resource] = counts.get(device.resource, 0) + 1
    return {resource: str(count) for resource, count in counts.items()}


def labels(devices: list[Device]) -> dict[str, str]:
    """As NVIDIA's feature discovery names them, so that a cluster's nodeSelector means the same here."""
    if not devices:
        return {}
    first = devices[0]
    product = first.product.replace(" ", "-")
    # Slices are resources of their own, which is what that strategy means.
    strategy = {"nvidia.com/mig.strategy": "mixed"} if any(one.resource != GPU for one in devices) else {}
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": str(len({device.uuid for device in devices})),
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": str(first.memory_mib),
        **strategy,
    }


def asked(container: Object) -> dict[str, int]:
    """Device counts of one container by resource; limits rule, as for every extended resource."""
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {name: quantity.parse(str(text)).value for name, text in amounts.items() if name.startswith("nvidia.com/")}


class DeviceAllocator:
    """Who has which device. Kept in each pod's plan on disk, so that a new agent finds it again."""

    def __init__(self, devices: list[Device], plans: Iterable[Object]) -> None:
        self._devices = devices
        self._used = {uuid for plan in plans for uuids in (plan.get("devices") or {}).values() for uuid in uuids}

    def take(self, containers: Iterable[Object]) -> dict[str, list[str]]:
        """Devices for each container, all or none."""
        taken: dict[str, list[str]] = {}
        used = set(self._used)
        for container in containers:
            for resource, count in asked(container).items():
                free = [one.uuid for one in self._devices if one.resource == resource and one.uuid not in used]
                if len(free) < count:
                    raise YardError(
                        f"Allocate failed due to requested number of devices unavailable for {resource}. "
                        f"Requested: {count}, Available: {len(free)}, which is unexpected",
                        code="UnexpectedAdmissionError",
                    )
                taken.setdefault(container["name"], []).extend(free[:count])
                used.update(free[:count])
        self._used = used
        return taken

    def give_back(self, taken: Mapping[str, list[str]]) -> None:
        for uuids in taken.values():
            self._used.difference_update(uuids)


def environment(uuids: list[str]) -> dict[str, str]:
    """What a container sees: its own devices, or explicitly none."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(uuids), "NVIDIA_VISIBLE_DEVICES": ",".join(uuids) or "void"}


def nodes() -> list[Path]:
    """The driver's device files; which of the GPUs a container may use is up to CUDA_VISIBLE_DEVICES."""
    return sorted(Path("/dev").glob("nvidia*"))
