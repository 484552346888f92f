"""Which cluster a command uses."""

from __future__ import annotations

from pathlib import Path

from torchyard.kube.kubeconfig import Connection, NotConfiguredError, load
from torchyard.yard.settings import PlaneSettings, default_state


def resolve_connection(kubeconfig: Path | None = None, context: str = "", state: Path | None = None) -> Connection:
    """The named kubeconfig or context; else kubectl's; else the plane of this machine or of `state`.

    A kubeconfig that names a cluster and is not valid is an error: a command must not change another cluster instead.
    """
    plane = PlaneSettings(state=(state or default_state()).absolute()).kubeconfig
    if kubeconfig is not None or context:
        return load(kubeconfig, context=context)
    if state is not None:
        return load(plane)
    try:
        return load()
    except NotConfiguredError:
        if plane.exists():
            return load(plane)
        raise
