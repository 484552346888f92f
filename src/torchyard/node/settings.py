"""What a node is told when it starts."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchyard.node.network.addresses import NetworkSettings


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """`root` holds all the node's state and must be private to its user."""

    root: Path
    private: Path | None = None  # a directory around it that no pod may mount either; keys lie there
    claims: Path | None = None  # the part of it in which volumes are made for claims
    name: str = field(default_factory=lambda: socket.gethostname().lower())
    python: str = ""  # the interpreter mapped images run; empty: the active environment
    engine: bool = False  # run every image that podman or docker holds in it, not only those unknown here
    ranges: NetworkSettings = field(default_factory=NetworkSettings)
    api_address: tuple[str, int] | None = None  # where pods' requests to the kubernetes service go
    max_pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)  # overrides what was found on the machine
    log_max_bytes: int = 10 << 20
    log_max_files: int = 5
    heartbeat_seconds: float = 10.0
    volume_refresh_seconds: float = 5.0  # how often config maps and the like are written anew into running pods

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    @property
    def images(self) -> Path:
        return self.root / "images"
