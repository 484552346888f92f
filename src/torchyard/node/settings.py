"""The settings of a node."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchyard.node.network.addresses import NetworkSettings
from torchyard.node.resources.cgroups import default_pids_limit


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """`root` holds all state of the node and must be private to its user."""

    root: Path
    private: Path | None = None  # a parent of it that no pod may mount either; it holds keys
    claims: Path | None = None  # the part of it that holds the volumes of claims
    name: str = field(default_factory=lambda: socket.gethostname().lower())
    python: str = ""  # the interpreter of mapped images; empty: the active environment
    engine: bool = False  # run every image that podman or docker has there, not only those unknown here
    network: NetworkSettings = field(default_factory=NetworkSettings)
    api_address: tuple[str, int] | None = None  # the endpoint of the kubernetes service
    max_pods: int = 110
    node_port_addresses: str = ""  # ranges besides loopback, or `primary`: where node ports and host ports are open
    route_pods: bool = False  # the machine, and pods with hostNetwork, reach the addresses of pods and Services
    pod_pids_limit: int = field(default_factory=default_pids_limit)  # processes and threads of a pod; -1: unlimited
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)  # overrides what the machine has
    log_max_bytes: int = 10 << 20
    log_max_files: int = 5
    kept_logs: Path | None = None  # where the logs of pods that are removed go; None: nowhere
    heartbeat_seconds: float = 10.0
    storage_check_seconds: float = 10.0  # how often the disk usage of pods with limits is measured
    volume_refresh_seconds: float = 5.0  # how often config maps, secrets and so on are refreshed in running pods

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    @property
    def images(self) -> Path:
        return self.root / "images"
