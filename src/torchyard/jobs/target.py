"""Which cluster a caller has chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torchyard.kube.kubeconfig import Connection


class Target(Protocol):
    """A cluster, and how it was chosen: by a kubeconfig file, by the state directory of a plane, or by default."""

    @property
    def kubeconfig(self) -> Path | None: ...

    @property
    def state(self) -> Path | None: ...

    @property
    def connection(self) -> Connection: ...

    @property
    def namespace(self) -> str: ...
