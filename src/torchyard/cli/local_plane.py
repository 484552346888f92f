"""Whether a command talks to a plane of this machine, whose files it can read."""

from __future__ import annotations

from torchyard.cli.target import Cluster
from torchyard.kube.kubeconfig import KubeconfigError, load
from torchyard.yard.settings import PlaneSettings, default_state


def local_plane(cluster: Cluster) -> PlaneSettings | None:
    """The settings of the plane that a command talks to; None for another cluster, or a plane of another machine."""
    candidates = [PlaneSettings(state=(cluster.state or default_state()).absolute())]
    if cluster.kubeconfig is not None:  # the kubeconfig of a plane lies in its state directory
        candidates.append(PlaneSettings(state=cluster.kubeconfig.absolute().parent))
    for candidate in candidates:
        try:
            if candidate.kubeconfig.exists() and load(candidate.kubeconfig).server == cluster.connection.server:
                return candidate
        except (KubeconfigError, OSError):
            continue
    return None
