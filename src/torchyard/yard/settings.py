"""The settings of `yard up`, and the paths below its state directory."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torchyard.api.errors import YardError

DEFAULT_PORT = 6550
# A callback that blocks the event loop for longer is recorded.
THRESHOLD_SECONDS = 0.1


def default_state() -> Path:
    """The state directory by the XDG rules: $XDG_STATE_HOME/torchyard, or ~/.local/state/torchyard."""
    base = os.environ.get("XDG_STATE_HOME", "")
    root = Path(base) if base and Path(base).is_absolute() else _home() / ".local" / "state"
    return root / "torchyard"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        hint = "set HOME, or name a state directory with --state"
        raise YardError("this user has no home directory for the plane's state", hint=hint, code="BadState") from None


def ensure_state_directory(state: Path) -> None:
    """Create the state directory if needed, accessible only by its owner, and check that it is writable."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError:
        reason = "it is not a directory"
    except OSError as error:
        reason = error.strerror or str(error)
    else:
        if os.access(state, os.R_OK | os.W_OK | os.X_OK):
            return
        reason = "it is not writable"
    raise YardError(
        f"{state} cannot be the state directory: {reason}", hint="name another with --state", code="BadState"
    )


def default_node_name() -> str:
    """The host name, adjusted to a valid node name."""
    allowed = re.sub(r"[^a-z0-9.]+", "-", socket.gethostname().lower())
    labels = [label.strip("-") for label in allowed[:63].split(".")]
    return ".".join(filter(None, labels)) or "node"


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    state: Path = field(default_factory=default_state)
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    fsync: Literal["normal", "full"] = "normal"
    token_auth_file: Path | None = None
    controllers: str = "*"
    names: tuple[str, ...] = ()  # further host names for the server's certificate
    node: bool = False  # run pods on this machine
    node_name: str = field(default_factory=default_node_name)
    # with a node: a ClusterQueue with the machine's resources, and a LocalQueue in every namespace
    local_queues: bool = True
    queue_config: Path | None = None  # Kueue's Configuration, for settings other than its defaults
    gpu_product: str = ""  # overrides the GPU product that feature discovery would report; empty: detect it
    python: str = ""  # the interpreter of mapped images; empty: the last one chosen, or the active environment
    keep_pods: bool = False  # keep pods running when the plane stops
    engine: bool = False  # run every image that podman or docker has with it, not only images unknown to the plane
    node_port_addresses: str = ""  # ranges besides loopback, or `primary`: where node ports and host ports are open
    route_pods: bool = False  # the machine, and pods with hostNetwork, reach the addresses of pods and Services
    pod_pids_limit: int | None = None  # processes and threads of a pod; -1: unlimited; None: the node's default
    watchdog_threshold: float = THRESHOLD_SECONDS  # seconds; 0: no watchdog
    history_days: int = 30  # how long ended jobs and their logs are kept; 0: not at all
    max_connections: int = 0  # of the API server; 0: as many as the limit of open files allows, up to 32,768

    @property
    def name(self) -> str:
        """The plane's name in kubeconfigs."""
        return "torchyard"

    @property
    def database(self) -> Path:
        return self.state / "store.db"

    @property
    def credentials(self) -> Path:
        return self.state / "pki"

    @property
    def volumes(self) -> Path:
        """The directories of provisioned volumes."""
        return self.state / "volumes"

    @property
    def owned_digest(self) -> Path:
        """Which definitions and roles of its own the plane has written last."""
        return self.state / "owned.sha256"

    @property
    def node_root(self) -> Path:
        """The directory of the node: its pods and images."""
        return self.state / "node"

    @property
    def history(self) -> Path:
        """The jobs that ended, and their logs."""
        return self.state / "history"

    @property
    def samples(self) -> Path:
        """Curves of jobs, for the console."""
        return self.state / "samples.db"

    @property
    def python_choice(self) -> Path:
        """The path of the interpreter that the last `yard up --python` chose."""
        return self.state / "python"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def log(self) -> Path:
        return self.state / "yard.log"

    @property
    def lock(self) -> Path:
        return self.state / "lock"
