"""A temporary node directory with its zygote, and container configs for it. Everything started is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Collection
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from torchyard.node.runtime import machine_features, rootfs_steps
from torchyard.node.runtime.seccomp import filters
from torchyard.node.shim import records
from torchyard.node.shim.client import ClusterNetwork, ShimClient, ShimNotRunning, ZygoteClient

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import (
        ClusterNetworkConfig,
        ContainerConfig,
        ContainerRecord,
        PidsLimit,
        SandboxConfig,
    )

NETWORK: ClusterNetworkConfig = {
    "bridge": "yard0",
    "gateway": "10.244.0.1",
    "prefix": 24,
    "services": "10.96.0.0",
    "services_prefix": 16,
    "pods": "10.244.0.0/24",
}
CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)  # a container's by default
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


@lru_cache(maxsize=1)
def machine() -> machine_features.MachineFeatures:
    return machine_features.detect()


def need_sandbox() -> None:
    if not machine().sandbox:
        pytest.skip(f"no sandbox on this machine: {machine().sandbox_missing}")


def need_seccomp() -> None:
    need_sandbox()
    if not machine().seccomp:
        pytest.skip(f"no seccomp on this machine: {machine().seccomp_missing}")


def need_network() -> None:
    if not machine().network:
        pytest.skip(f"no pod network on this machine: {machine().network_missing or machine().sandbox_missing}")


def need_outbound() -> None:
    need_network()
    if machine().outbound_missing:
        pytest.skip(f"no outbound network on this machine: {machine().outbound_missing}")


class ShimHarness:
    """One node's state directory."""

    def __init__(self, root: Path, *, pids: PidsLimit | None = None) -> None:
        self.root = root
        self.sandboxed = machine().sandbox
        self.zygote = ZygoteClient(root, {"namespaces": self.sandboxed, "network": NETWORK, "pids": pids})
        self.pods: list[Path] = []

    async def pod(self, name: str, *, sandboxed: bool = True, address: str = "", **more: Any) -> ShimClient:
        """Start a pod's shim; `more` overrides any field of its config."""
        pod_dir = self.root / name
        pod_dir.mkdir()
        config: SandboxConfig = {"sandboxed": sandboxed, "hostname": name, "tmpfs": [], "network": None}
        if address:
            config["network"] = {"address": address, "prefix": NETWORK["prefix"], "gateway": NETWORK["gateway"]}
        records.write(records.pod_path(str(pod_dir)), {**config, **more})
        self.pods.append(pod_dir)
        await self.zygote.start_shim(pod_dir)
        return ShimClient(pod_dir)

    def create(self, pod: ShimClient, name: str, argv: list[str], *, sandboxed: bool = True, **more: Any) -> None:
        """Write the config of a container; `more` overrides any of its fields."""
        attempt = more.get("attempt", 0)
        if more.get("privileged"):
            more = {"seccomp": "", "masked_paths": [], "read_only_paths": [], **more}
        directory = pod.pod / "containers" / name
        scratch = directory / f"{attempt}.root"
        scratch.mkdir(parents=True, exist_ok=True)
        steps = more.pop("steps", None)
        if sandboxed and steps is None:
            root = rootfs_steps.RootfsSource(machine=True, prefixes=(Path(sys.prefix), Path(sys.base_prefix)))
            privileged = more.get("privileged", False)
            steps = rootfs_steps.rootfs_steps(
                root,
                more.pop("mounts", []),
                scratch=directory / f"{attempt}.rw",
                devices=[],
                privileged=privileged,
                may_remount=privileged or 21 in more.get("capabilities", ()),  # SYS_ADMIN
                host_pid=more.get("pid") == "NODE",
            )
        capabilities = more.get("capabilities", list(CAPABILITIES))
        config: ContainerConfig = {
            "container": name,
            "attempt": attempt,
            "id": f"{name}-{attempt}",
            "argv": argv,
            "env": {"PATH": DEFAULT_PATH},
            "cwd": "/",
            "user": {"uid": 0, "gid": 0, "groups": []},
            "tty": False,
            "stdin": False,
            "stdin_once": False,
            "log": {"path": str(directory / f"{attempt}.log"), "max_bytes": 10 << 20, "max_files": 5},
            "root": steps if sandboxed else None,
            "root_directory": str(scratch),
            "read_only_root": False,
            "privileged": False,
            "capabilities": capabilities,
            "no_new_privileges": False,
            "seccomp": self.seccomp_filter(capabilities),
            "masked_paths": list(rootfs_steps.MASKED_PATHS),
            "read_only_paths": list(rootfs_steps.READ_ONLY_PATHS),
            "cgroups": [],
            "memory_limit": None,
        }
        records.write(records.config_path(str(pod.pod), name, attempt), {**config, **more})

    def seccomp_filter(self, capabilities: Collection[int] = CAPABILITIES) -> str:
        return filters.filter_file(self.root, filters.RUNTIME_DEFAULT, capabilities) if machine().seccomp else ""

    async def run(self, pod: ShimClient, name: str, argv: list[str], **more: Any) -> ContainerRecord:
        """Start a container and wait for its end."""
        self.create(pod, name, argv, **more)
        await pod.start(name, more.get("attempt", 0))
        return await self.ended(pod, name, more.get("attempt", 0))

    async def ended(self, pod: ShimClient, name: str, attempt: int = 0) -> ContainerRecord:
        for _ in range(6000):
            record = records.read_record(str(pod.pod), name, attempt)
            if record and record["state"] == records.EXITED:
                return record
            await asyncio.sleep(0.01)
        raise AssertionError(f"{name} did not end")

    def output(self, pod: ShimClient, name: str, attempt: int = 0) -> list[str]:
        """The text of each logged line."""
        text = (pod.pod / "containers" / name / f"{attempt}.log").read_text()
        return [line.split(" ", 3)[3] for line in text.splitlines()]

    async def close(self) -> None:
        for pod_dir in self.pods:
            with contextlib.suppress(ShimNotRunning):
                await ShimClient(pod_dir).shutdown()
        for _ in range(6000):
            if not any(_is_locked(pod_dir / "shim.lock") for pod_dir in self.pods):
                break
            await asyncio.sleep(0.01)
        with contextlib.suppress(ShimNotRunning):
            await ClusterNetwork(self.root).shutdown()
        with contextlib.suppress(ShimNotRunning):
            await self.zygote.shutdown()
        shutil.rmtree(self.root, ignore_errors=True)


def _is_locked(lock: Path) -> bool:
    import fcntl

    if not lock.exists():
        return False
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextlib.asynccontextmanager
async def shim_harness(root: Path, *, pids: PidsLimit | None = None) -> AsyncIterator[ShimHarness]:
    harness = ShimHarness(root, pids=pids)
    try:
        yield harness
    finally:
        await harness.close()


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def processes_with(text: str) -> list[int]:
    """The processes with this text in their command line, as those of a node have its directory."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes():
                pids.append(int(path.parent.name))
    return pids
