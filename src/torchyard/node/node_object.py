"""The Node object: capacity, conditions, labels. Pure but for reading the machine."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from datetime import UTC, datetime
from pathlib import Path

import psutil

from torchyard import __version__
from torchyard.api.cluster import node_messages as messages
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.node.devices import nvidia
from torchyard.node.runtime.machine_features import MachineFeatures
from torchyard.node.settings import NodeSettings

VERSION = "v1.34.4"
# the kubelet's default eviction thresholds: 100Mi of memory, 10% of the disk, 5% of its inodes
_MEMORY_LOW, _DISK_LOW = 100 << 20, 0.10
_INODES_LOW, _PIDS_LOW = 0.05, 0.05


def host_address() -> str:
    """The address this machine uses to reach others; loopback where it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def capacity(settings: NodeSettings, devices: list[nvidia.Device]) -> dict[str, str]:
    memory = psutil.virtual_memory().total
    disk = shutil.disk_usage(settings.root).total
    detected = {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{memory >> 10}Ki",
        "ephemeral-storage": f"{disk >> 10}Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "pods": str(settings.max_pods),
        **nvidia.capacity(devices),
    }
    return {**detected, **settings.capacity}


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
    spec = {"podCIDR": settings.network.pods, "podCIDRs": [settings.network.pods]}
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
    """Pressure, readiness, isolation and limits; the kubelet's own conditions have its reasons and messages."""
    memory_low = psutil.virtual_memory().available < _MEMORY_LOW
    disk_low = is_disk_low(settings.root)
    limit = _text("/proc/sys/kernel/pid_max")
    pids_low = limit.isdigit() and len(psutil.pids()) > int(limit) * (1 - _PIDS_LOW)
    missing = machine.sandbox_missing or machine.network_missing or machine.seccomp_missing
    cgroups = machine.cgroups
    not_isolated = (messages.REASON_NOT_ISOLATED, messages.not_isolated(missing))
    limits = messages.REASON_LIMITS_ENFORCED if cgroups.enforced else messages.REASON_LIMITS_NOT_ENFORCED
    current = [
        ("MemoryPressure", memory_low, messages.MEMORY_PRESSURE[not memory_low]),
        ("DiskPressure", disk_low, messages.DISK_PRESSURE[not disk_low]),
        ("PIDPressure", pids_low, messages.PID_PRESSURE[not pids_low]),
        ("PodsIsolated", not missing, not_isolated if missing else messages.PODS_ISOLATED),
        ("LimitsEnforced", cgroups.enforced, (limits, cgroups.description)),
        ("Ready", True, messages.READY),
    ]
    by_type = {condition["type"]: condition for condition in before}
    now = to_rfc3339(datetime.now(UTC))
    return [_condition(by_type.get(kind), kind, holds, text, now) for kind, holds, text in current]


def is_disk_low(path: Path) -> bool:
    """Whether the kubelet would report disk pressure: too few free bytes or inodes."""
    disk = os.statvfs(path)
    # a file system without a fixed number of inodes has none at all, by its own account
    return disk.f_bavail < disk.f_blocks * _DISK_LOW or disk.f_favail < disk.f_files * _INODES_LOW


def _condition(before: Object | None, kind: str, holds: bool, text: tuple[str, str], now: str) -> Object:
    status = "True" if holds else "False"
    changed = before["lastTransitionTime"] if before and before["status"] == status else now
    reason, message = text
    return {
        "type": kind,
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": changed,
        "reason": reason,
        "message": message,
    }
