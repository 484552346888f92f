"""Whether a command talks to a plane of this machine, whose files it can read."""

from __future__ import annotations

import os
from pathlib import Path

from torchyard.jobs.target import Target
from torchyard.kube.kubeconfig import KubeconfigError, load
from torchyard.yard.settings import PlaneSettings, default_state


def local_plane(cluster: Target) -> PlaneSettings | None:
    """The settings of the plane that a command talks to; None for another cluster, or a plane of another machine."""
    candidates = [PlaneSettings(state=(cluster.state or default_state()).absolute())]
    # the kubeconfig of a plane lies in its state directory
    named = [cluster.kubeconfig] if cluster.kubeconfig else [Path(name) for name in _kubeconfig_variable()]
    candidates += [PlaneSettings(state=path.absolute().parent) for path in named]
    for candidate in candidates:
        try:
            if candidate.kubeconfig.exists() and load(candidate.kubeconfig).server == cluster.connection.server:
                return candidate
        except (KubeconfigError, OSError):
            continue
    return None


def _kubeconfig_variable() -> list[str]:
    return [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
