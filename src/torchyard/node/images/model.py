"""An image: its name, its root, and the config that its program is started with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from torchyard.api.errors import YardError
from torchyard.api.pod import kubelet_messages as messages
from torchyard.node.runtime.rootfs_steps import RootfsSource

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REFERENCE = re.compile(
    r"(?:(?P<host>[a-zA-Z0-9.-]+(?::[0-9]+)?)/)?(?P<path>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>[a-z0-9]+:[a-fA-F0-9]{32,}))?"
)


class ImageError(YardError):
    """The image cannot be used. `code` is the reason of the container's waiting state."""

    code = messages.REASON_IMAGE_PULL


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """OCI image config: how the program is started. Container fields override each of these."""

    env: dict[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    directory: str = "/"
    user: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "Env": [f"{name}={value}" for name, value in self.env.items()],
            "Entrypoint": list(self.entrypoint) or None,
            "Cmd": list(self.command) or None,
            "WorkingDir": self.directory,
            "User": self.user,
            "Labels": self.labels,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> ImageConfig:
        return cls(
            env=dict(entry.split("=", 1) for entry in content.get("Env") or () if "=" in entry),
            entrypoint=tuple(content.get("Entrypoint") or ()),
            command=tuple(content.get("Cmd") or ()),
            directory=content.get("WorkingDir") or "/",
            user=content.get("User") or "",
            labels=content.get("Labels") or {},
        )


@dataclass(frozen=True, slots=True)
class Image:
    """An image that can run here. `id` is a digest of its content."""

    name: str
    id: str
    root: RootfsSource
    config: ImageConfig
    engine: bool = False  # podman or docker has it, and runs it


def full_name(name: str) -> str:
    """The name with registry, `library/` and tag, as a kubelet reports it."""
    parts = _REFERENCE.fullmatch(name)
    if parts is None:
        raise ImageError(messages.image_name_invalid(name), code=messages.REASON_INVALID_IMAGE_NAME)
    host, path = parts.group("host"), parts.group("path")
    if host and "." not in host and ":" not in host and host != "localhost":
        host, path = None, f"{host}/{path}"
    if not host:
        host, path = "docker.io", path if "/" in path else f"library/{path}"
    tail = f"@{parts.group('digest')}" if parts.group("digest") else f":{parts.group('tag') or 'latest'}"
    return f"{host}/{path}{tail}"
