"""What an image is to the node: a root, and how its program is started."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from torchyard.api.errors import YardError
from torchyard.node.runtime.rootfs_steps import RootfsSource

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REFERENCE = re.compile(
    r"(?:(?P<host>[a-zA-Z0-9.-]+(?::[0-9]+)?)/)?(?P<path>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>[a-z0-9]+:[a-fA-F0-9]{32,}))?"
)


class ImageError(YardError):
    """Why there is no such image here. `code` is the reason a container's status shows."""

    code = "ErrImagePull"


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """How the image wants its program started; container fields override each of these."""

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
    def from_dict(cls, read: dict[str, Any]) -> ImageConfig:
        return cls(
            env=dict(one.split("=", 1) for one in read.get("Env") or () if "=" in one),
            entrypoint=tuple(read.get("Entrypoint") or ()),
            command=tuple(read.get("Cmd") or ()),
            directory=read.get("WorkingDir") or "/",
            user=read.get("User") or "",
            labels=read.get("Labels") or {},
        )


@dataclass(frozen=True, slots=True)
class Image:
    """An image that can be run here. `id` is a digest of what it really is."""

    name: str
    id: str
    root: RootfsSource
    config: ImageConfig
    engine: bool = False  # a container engine has it, and runs it


def full_name(name: str) -> str:
    """The name with registry, `library/` and tag written out, as a real node reports it."""
    parts = _REFERENCE.fullmatch(name)
    if parts is None:
        problem = (
            f'Failed to apply default image tag "{name}": couldn\'t parse image name "{name}": invalid reference format'
        )
        raise ImageError(problem, code="InvalidImageName")
    host, path = parts.group("host"), parts.group("path")
    if host and "." not in host and ":" not in host and host != "localhost":
        host, path = None, f"{host}/{path}"
    if not host:
        host, path = "docker.io", path if "/" in path else f"library/{path}"
    tail = f"@{parts.group('digest')}" if parts.group("digest") else f":{parts.group('tag') or 'latest'}"
    return f"{host}/{path}{tail}"
