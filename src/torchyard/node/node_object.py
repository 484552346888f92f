"""The Node object: what the machine has, how it is, which rung its pods run on. Pure but for reading the machine."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from datetime import UTC, datetime
from pathlib import Path

import psutil

from torchyard import __version__
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.node.devices import nvidia
from torchyard.node.runtime.machine_features import MachineFeatures
from torchyard.node.settings import NodeSettings

VERSION = "v1.34.4"
# the kubelet's default eviction thresholds: 100Mi of memory, 10% of the disk, 5% of its inodes
_MEMORY_LOW, _DISK_LOW = 100 << 20, 0.10
_PIDS_LOW = 0.05


def host_address() -> str:
    """The address this machine would use to reach others; loopback where it has no route at all."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def capacity(settings: NodeSettings, devices: list[nvidia.Device]) -> dict[str, str]:
    memory = psutil.virtual_memory().total
    disk = shutil.disk_usage(settings.root).total
    found = {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{memory >> 10}Ki",
        "ephemeral-storage": f"{disk >> 10}Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "pods": str(settings.max_pods),
        **nvidia.capacity(devices),
    }
    return {**found, **settings.capacity}


def node(settings: NodeSettings, machine: MachineFeatures, devices: list[nvidia.Device], *, host_ip: str) -> Object:
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    labels = {
        "kubernetes.io/hostname": settings.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": architecture,
        "node-role.kubernetes.io/control-plane": "",
        **machine.labels(),
        **nvidia.labels(devices),
        **settings.labels,
    }
    spec = {"podCIDR": settings.ranges.pods, "podCIDRs": [settings.ranges.pods]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": settings.name, "labels": labels},
        "spec": spec,
        "status": status(settings, machine, devices, host_ip=host_ip, before=[]),
    }


def status(
    settings: NodeSettings,
    machine: MachineFeatures,
    devices: list[nvidia.Device],
    *,
    host_ip: str,
    before: list[Object],
) -> Object:
    amounts = capacity(settings, devices)
    return {
        "capacity": amounts,
        "allocatable": dict(amounts),
        "addresses": [{"type": "InternalIP", "address": host_ip}, {"type": "Hostname", "address": settings.name}],
        "conditions": conditions(settings, machine, before=before),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": {
            "machineID": _text("/etc/machine-id"),
            "systemUUID": _text("/sys/class/dmi/id/product_uuid"),
            "bootID": _text("/proc/sys/kernel/random/boot_id"),
            "kernelVersion": platform.release(),
            "osImage": _os_image(),
            "containerRuntimeVersion": f"torchyard://{__version__}",
            "kubeletVersion": VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        },
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _os_image() -> str:
    for line in _text("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return platform.system()


def conditions(settings: NodeSettings, machine: MachineFeatures, *, before: list[Object]) -> list[Object]:
    """Pressure, readiness, and which rung the pods run on, each with the kubelet's words where it has any."""
    memory_low = psutil.virtual_memory().available < _MEMORY_LOW
    disk = shutil.disk_usage(settings.root)
    disk_low = disk.free < disk.total * _DISK_LOW
    limit = _text("/proc/sys/kernel/pid_max")
    pids_low = limit.isdigit() and len(psutil.pids()) > int(limit) * (1 - _PIDS_LOW)
    isolated = machine.sandbox_missing or machine.network_missing
    found = [
        ("MemoryPressure", memory_low, "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory",
         "kubelet has insufficient memory available", "kubelet has sufficient memory available"),
        ("DiskPressure", disk_low, "KubeletHasDiskPressure", "KubeletHasNoDiskPressure",
         "kubelet has disk pressure", "kubelet has no disk pressure"),
        ("PIDPressure", pids_low, "KubeletHasInsufficientPID", "KubeletHasSufficientPID",
         "kubelet has insufficient PID available", "kubelet has sufficient PID available"),
        ("PodsIsolated", not isolated, "Namespaces", "NoNamespaces",
         "pods run in namespaces of their own", f"pods share what the machine does not let us separate: {isolated}"),
        ("LimitsEnforced", machine.limits.enforced, "Cgroups", "NoCgroups", machine.limits.words, machine.limits.words),
        ("Ready", True, "KubeletReady", "", "kubelet is posting ready status", ""),
    ]  # fmt: skip
    known = {one["type"]: one for one in before}
    now = to_rfc3339(datetime.now(UTC))
    return [
        _condition(known.get(kind), kind, bool(holds), (yes, said) if holds else (no, unsaid), now)
        for kind, holds, yes, no, said, unsaid in found
    ]


def _condition(before: Object | None, kind: str, holds: bool, words: tuple[str, str], now: str) -> Object:
    text = "True" if holds else "False"
    changed = before["lastTransitionTime"] if before and before["status"] == text else now
    return {
        "type": kind,
        "status": text,
        "lastHeartbeatTime": now,
        "lastTransitionTime": changed,
        "reason": words[0],
        "message": words[1],
    }
