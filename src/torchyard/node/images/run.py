"""RUN of a Dockerfile: one command in a sandbox. What it writes becomes the new layer of the image."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.api.errors import YardError
from torchyard.node.network.addresses import NetworkSettings
from torchyard.node.runtime.rootfs_steps import (
    MASKED_PATHS,
    READ_ONLY_PATHS,
    SYSTEM,
    Mount,
    RootfsSource,
    rootfs_steps,
)
from torchyard.node.runtime.seccomp import filters
from torchyard.node.shim import records
from torchyard.node.shim.client import ShimClient, ZygoteClient
from torchyard.node.shutdown import stop_pods

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ContainerConfig, ContainerRecord, SandboxConfig

PrintLine = Callable[[str], None]
_CAPABILITIES = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31]  # those of an ordinary container
_NEEDS_ENGINE = ("apt-get", "apt ", "add-apt-repository", "yum ", "dnf ", "apk ")


class RunError(YardError):
    code = "RunError"


async def run_in_sandbox(
    root: RootfsSource, layer: Path, command: list[str], *, env: dict[str, str], directory: str, print_line: PrintLine
) -> None:
    """Run it in the machine's own network, as root of the sandbox, and merge what it wrote into `layer`."""
    state = Path(tempfile.mkdtemp(prefix="yard-build-"))
    pod_dir = state / "pods" / "build"
    scratch, rootfs = pod_dir / "scratch", pod_dir / "root"
    for path in (scratch, rootfs, pod_dir / "containers" / "run"):
        path.mkdir(parents=True)
    files = [Path("/etc") / name for name in ("hosts", "resolv.conf")]
    mounts = [Mount(file, str(file)) for file in files if file.exists()]
    created = _cover_system_directories(layer) if root.machine else []
    steps = rootfs_steps(root, mounts, scratch=scratch, devices=[])
    sandbox: SandboxConfig = {"sandboxed": True, "hostname": "build", "tmpfs": [], "network": None}
    records.write(records.pod_path(str(pod_dir)), sandbox)
    log = pod_dir / "log"
    config: ContainerConfig = {
        "container": "run",
        "attempt": 0,
        "id": "build",
        "argv": command,
        "env": {"HOME": "/root", **env},
        "cwd": directory,
        "user": {"uid": 0, "gid": 0, "groups": []},
        "tty": False,
        "stdin": False,
        "stdin_once": False,
        "log": {"path": str(log), "max_bytes": 100 << 20, "max_files": 1},
        "root": steps,
        "root_directory": str(rootfs),
        "read_only_root": False,
        "privileged": False,
        "capabilities": _CAPABILITIES,
        "no_new_privileges": False,
        "seccomp": filters.filter_file(state, filters.RUNTIME_DEFAULT, _CAPABILITIES) if filters.is_supported() else "",
        "masked_paths": list(MASKED_PATHS),
        "read_only_paths": list(READ_ONLY_PATHS),
        "cgroups": [],
        "memory_limit": None,
    }
    records.write(records.config_path(str(pod_dir), "run", 0), config)
    try:
        zygote = ZygoteClient(state, {"namespaces": True, "network": NetworkSettings().for_namespace_holder()})
        await zygote.start_shim(pod_dir)
        record = await _run_to_end(ShimClient(pod_dir))
        lines = [line.split(" ", 3)[3] for line in log.read_text(errors="replace").splitlines() if line.count(" ") >= 3]
        for line in lines:
            print_line(line)
        if record["exitCode"]:
            text = " ".join(command)
            needs_engine = any(program in text for program in _NEEDS_ENGINE)
            hint = (
                "system packages need a container engine: build the image with podman or docker, and it runs there"
                if needs_engine
                else ""
            )
            raise RunError(f"exit code {record['exitCode']} {record.get('message', '')}".rstrip(), hint=hint)
        await asyncio.to_thread(_merge, scratch / "written", rootfs, layer)
    finally:
        await stop_pods(state)
        await asyncio.to_thread(shutil.rmtree, state, ignore_errors=True)
        for path in created:
            if not any(path.iterdir()):
                path.rmdir()


def _cover_system_directories(layer: Path) -> list[Path]:
    """Make the machine's own directories writable for the command: an overlay covers those that the layer has."""
    system = [Path("/", name) for name in SYSTEM]
    paths = [layer / path.name for path in system if path.is_dir() and not path.is_symlink()]
    created = [path for path in paths if not path.exists()]
    for path in created:
        path.mkdir()
    return created


async def _run_to_end(shim: ShimClient) -> ContainerRecord:
    async with await shim.channel() as channel:
        channel.send({"op": "subscribe"})
        await channel.receive()
        record = await shim.start("run", 0)
        while record["state"] != records.EXITED:
            await channel.receive()
            record = records.read_record(str(shim.pod), "run", 0) or record
    return record


def _merge(written: Path, rootfs: Path, layer: Path) -> None:
    """Merge the overlays' upper directories, and what was created directly under the new root."""
    for top in sorted(written.iterdir()) if written.is_dir() else ():
        _copy_tree(top, layer / top.name)
    for top in sorted(rootfs.iterdir()):
        if top.name not in _NOT_IN_LAYER and not top.is_symlink():
            _copy_tree(top, layer / top.name)


_NOT_IN_LAYER = {"proc", "sys", "dev", "tmp", "run", "etc", *SYSTEM}


def _copy_tree(source: Path, copy: Path) -> None:
    """Copy a written tree. A whiteout (a character device) removes what the lower layers have."""
    for path in [source, *sorted(source.rglob("*"))]:
        target = copy / path.relative_to(source)
        if path.is_char_device():
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
        elif path.is_symlink():
            target.unlink(missing_ok=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path.readlink())
        elif path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif path.is_file() and _has_content(path, source):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


def _has_content(path: Path, source: Path) -> bool:
    """The sandbox creates mount points: empty files outside the layers, which are not part of the image."""
    return source.name not in ("root", "home", "var") or path.stat().st_size > 0
