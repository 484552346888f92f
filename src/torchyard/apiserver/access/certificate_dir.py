"""The directory of the plane's certificates and keys."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from torchyard.api.service.cidr import KUBERNETES_SERVICE_IP

SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    KUBERNETES_SERVICE_IP,  # the address that pods use
)

# An authority of its own: nobody who gets a client certificate for the API server can speak for other users.
FRONT_PROXY_AUTHORITY = "front-proxy-ca"
FRONT_PROXY_CLIENT = "front-proxy-client"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class CertificateDir:
    """The directory of the plane's certificates and keys; the files exist and are current."""

    directory: Path

    @property
    def authority(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def server_certificate(self) -> Path:
        return self.directory / "server.crt"

    @property
    def server_key(self) -> Path:
        return self.directory / "server.key"

    @property
    def service_account_key(self) -> Path:
        """The private key that signs service-account tokens."""
        return self.directory / "service-accounts.key"

    @property
    def front_proxy_authority(self) -> Path:
        """Signs the certificate by which extension API servers know this server."""
        return self.directory / f"{FRONT_PROXY_AUTHORITY}.crt"

    @property
    def front_proxy_client(self) -> tuple[Path, Path]:
        """The certificate and the key."""
        path = self.directory / f"{FRONT_PROXY_CLIENT}.crt"
        return path, path.with_suffix(".key")

    def load(self, name: str) -> KeyPair:
        """The key pair called `name`: `ca`, `server`, `admin`, or one that `ensure_client` issued."""
        return KeyPair(
            (self.directory / f"{name}.crt").read_bytes(),
            (self.directory / f"{name}.key").read_bytes(),
        )


def own_names() -> list[str]:
    """The names by which clients reach the server, whatever address it listens on."""
    return ["localhost", "127.0.0.1", "::1", socket.gethostname(), *SERVICE_NAMES]


def write(path: Path, content: bytes) -> None:
    """Write the file atomically, readable by the owner only."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)
    Path(file.name).replace(path)
