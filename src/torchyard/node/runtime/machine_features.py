"""What this machine can do. Detected once at start; shown as Node labels, conditions and by `yard doctor`."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from torchyard.api.cluster import node_labels
from torchyard.api.pod.field_support import Rung
from torchyard.node.resources.cgroups import CgroupSupport
from torchyard.node.resources.cgroups import find as find_cgroups
from torchyard.node.runtime import idmapped_mounts
from torchyard.node.runtime.seccomp import filters, syscall_table
from torchyard.node.shim import namespace_check


@dataclass(frozen=True, slots=True)
class MachineFeatures:
    """The rungs of this machine, and for each one that is missing the reason."""

    engine: str  # path of podman or docker; empty when none works
    engine_missing: str
    sandbox_missing: str  # empty: the sandbox works
    network_missing: str  # empty: pods get network namespaces
    outbound_missing: str  # empty: pods can open connections to the outside
    cgroups: CgroupSupport
    user: str
    seccomp_missing: str = ""  # empty: system calls of pods in the sandbox are filtered
    shifted_ids_missing: str = "not tried"  # empty: pods get ids of their own

    @property
    def sandbox(self) -> bool:
        return not self.sandbox_missing

    @property
    def network(self) -> bool:
        return self.sandbox and not self.network_missing

    @property
    def seccomp(self) -> bool:
        return self.sandbox and not self.seccomp_missing

    @property
    def shifted_ids(self) -> bool:
        return self.network and not self.shifted_ids_missing

    @property
    def rung(self) -> Rung:
        """The rung of pods whose images do not need the engine."""
        return "sandbox" if self.sandbox else "process"

    def labels(self) -> dict[str, str]:
        outbound = "none" if self.network and self.outbound_missing else "tcp" if self.network else "host"
        network = "namespaces" if self.network else "host"
        user = node_labels.ROOT if self.user == "root" else node_labels.ORDINARY
        return {
            node_labels.RUNTIME: self.rung,
            node_labels.NETWORK: network,
            node_labels.OUTBOUND: outbound,
            node_labels.SECCOMP: filters.RUNTIME_DEFAULT if self.seccomp else "none",
            node_labels.PIDS_LIMIT: "cgroup" if self.cgroups.pids else "none",
            node_labels.USER: user,
            node_labels.IDS: "shifted" if self.shifted_ids else "plane",
        }

    def lines(self) -> list[tuple[str, bool, str]]:
        """(feature, available, details): a table for people."""
        return [
            ("container engine", bool(self.engine), self.engine or self.engine_missing),
            (
                "sandbox",
                self.sandbox,
                self.sandbox_missing or f"user, mount, pid, ipc and uts namespaces, as {self.user}",
            ),
            ("shifted ids", self.shifted_ids, self._shifted_ids_details()),
            ("seccomp", self.seccomp, self._seccomp_details()),
            ("pod network", self.network, self.network_missing or "a network namespace per pod"),
            ("service addresses", self.network, self._service_details()),
            (
                "outbound network",
                not self.network or not self.outbound_missing,
                "the machine's own" if not self.network else self.outbound_missing or "TCP from every pod, and names",
            ),
            ("memory and cpu limits", self.cgroups.enforced, self.cgroups.description),
            ("process limit", self.cgroups.pids is not None, self._pids_details()),
        ]

    def _shifted_ids_details(self) -> str:
        if not self.network:
            return "only pods with a network of their own get ids of their own"
        if not self.shifted_ids_missing:
            return "each pod that is not privileged has 65,536 ids of its own"
        return f"pods have the ids of the plane's user: {self.shifted_ids_missing}"

    def _service_details(self) -> str:
        if self.network:
            return "cluster IPs in the pod network; node ports and host ports on the machine"
        return "no cluster IPs without a pod network; node ports work"

    def _seccomp_details(self) -> str:
        if not self.sandbox:
            return "only pods in the sandbox get a filter"
        return self.seccomp_missing or "the profile RuntimeDefault, unless a pod asks for another"

    def _pids_details(self) -> str:
        if self.cgroups.pids:
            return f"per pod, by cgroups under {self.cgroups.pids}"
        return "no pids cgroup may be created: all pods together have the limit of this user (ulimit -u)"


def detect(*, cgroup_root: Path = Path("/sys/fs/cgroup")) -> MachineFeatures:
    namespaces = _try_namespaces()
    sandbox = next(
        (f"{step} namespace: {namespaces[step]}" for step in namespace_check.STEPS[:3] if namespaces[step]), ""
    )
    engine, engine_missing = _find_engine()
    return MachineFeatures(
        engine=engine,
        engine_missing=engine_missing,
        sandbox_missing=sandbox and f"{sandbox}{_hint()}",
        network_missing=namespaces["network"] and f"network namespace: {namespaces['network']}",
        outbound_missing=namespaces["outbound"],
        cgroups=find_cgroups(cgroup_root),
        user="root" if os.geteuid() == 0 else "an ordinary user",
        seccomp_missing=namespaces["seccomp"] or _unknown_architecture(),
        shifted_ids_missing=idmapped_mounts.missing() if not namespaces["user"] else namespaces["user"],
    )


def _unknown_architecture() -> str:
    known = platform.machine() in syscall_table.ARCHITECTURES
    return "" if known else f"the system calls of {platform.machine()} are not known"


def _try_namespaces() -> dict[str, str]:
    if sys.platform != "linux":
        return dict.fromkeys(namespace_check.STEPS, f"{sys.platform} has no namespaces")
    check = subprocess.run(
        [sys.executable, "-I", "-S", namespace_check.__file__], capture_output=True, text=True, check=False
    )
    try:
        problems: dict[str, str] = json.loads(check.stdout)
    except ValueError:
        reason = (check.stderr.strip().splitlines() or ["the check printed nothing"])[-1]
        problems = dict.fromkeys(namespace_check.STEPS, reason)
    return problems


def _hint() -> str:
    """Ubuntu 24.04 and later deny user namespaces to programs without an AppArmor profile."""
    restricted = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if restricted.exists() and restricted.read_text().strip() == "1":
        return "; allow it with: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    return ""


def _find_engine() -> tuple[str, str]:
    missing = "neither podman nor docker is installed"
    for name in ("podman", "docker"):
        path = shutil.which(name)
        if not path:
            continue
        try:
            version = subprocess.run([path, "version"], capture_output=True, timeout=10, check=False)
        except subprocess.TimeoutExpired:
            missing = f"{name} version timed out"
            continue
        if version.returncode == 0:
            return path, ""
        missing = f"{name} is installed, but `{name} version` fails"
    return "", missing
