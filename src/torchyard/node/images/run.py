"""RUN of a Dockerfile: one command in a sandbox whose writes become the image's new layer."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from torchyard.api.errors import YardError
from torchyard.node.network.addresses import NetworkSettings
from torchyard.node.runtime.rootfs_steps import SYSTEM, Mount, RootfsSource, root_steps
from torchyard.node.shim import records
from torchyard.node.shim.client import ShimClient, ZygoteClient
from torchyard.node.shutdown import stop_pods

Say = Callable[[str], None]
_NEEDS_ENGINE = ("apt-get", "apt ", "add-apt-repository", "yum ", "dnf ", "apk ")


class RunError(YardError):
    code = "RunError"


async def run_in_sandbox(
    root: RootfsSource, layer: Path, command: list[str], *, env: dict[str, str], directory: str, say: Say
) -> None:
    """Run it in the machine's own network, as root of the sandbox. What it wrote is merged into `layer`."""
    state = Path(tempfile.mkdtemp(prefix="yard-build-"))
    home = state / "pods" / "build"
    scratch, rootfs = home / "scratch", home / "root"
    for path in (scratch, rootfs, home / "containers" / "run"):
        path.mkdir(parents=True)
    files = [Path("/etc") / name for name in ("hosts", "resolv.conf")]
    mounts = [Mount(file, str(file)) for file in files if file.exists()]
    opened = _open_machine(layer) if root.machine else []
    steps = root_steps(root, mounts, scratch=scratch, devices=[])
    records.write(str(home / "pod.json"), {"sandboxed": True, "hostname": "build", "tmpfs": [], "network": None})
    log = home / "log"
    launch = {
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
        "capabilities": [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31],
        "no_new_privileges": False,
        "cgroups": [],
        "memory_limit": None,
    }
    records.write(records.launch_path(str(home), "run", 0), launch)
    try:
        zygote = ZygoteClient(state, {"namespaces": True, "network": NetworkSettings().for_namespace_holder()})
        await zygote.start_shim(home)
        ended = await _finished(ShimClient(home))
        lines = [line.split(" ", 3)[3] for line in log.read_text(errors="replace").splitlines() if line.count(" ") >= 3]
        for line in lines:
            say(line)
        if ended["exitCode"]:
            text = " ".join(command)
            needs = any(one in text for one in _NEEDS_ENGINE)
            hint = (
                "system packages need a container engine: build it with podman or docker, and it runs there"
                if needs
                else ""
            )
            raise RunError(f"exit code {ended['exitCode']} {ended.get('message', '')}".rstrip(), hint=hint)
        await asyncio.to_thread(_merge, scratch / "written", rootfs, layer)
    finally:
        await stop_pods(state)
        await asyncio.to_thread(shutil.rmtree, state, ignore_errors=True)
        for place in opened:
            if not any(place.iterdir()):
                place.rmdir()


def _open_machine(layer: Path) -> list[Path]:
    """Let the command write into the machine's own directories: what a layer has is laid over them."""
    found = [Path("/", name) for name in SYSTEM]
    places = [layer / one.name for one in found if one.is_dir() and not one.is_symlink()]
    opened = [place for place in places if not place.exists()]
    for place in opened:
        place.mkdir()
    return opened


async def _finished(shim: ShimClient) -> records.ContainerRecord:
    async with await shim.channel() as channel:
        channel.send({"op": "subscribe"})
        await channel.receive()
        started = await shim.start("run", 0)
        while started["state"] != records.EXITED:
            await channel.receive()
            started = records.read(records.record_path(str(shim.pod), "run", 0)) or started
    return started


def _merge(written: Path, rootfs: Path, layer: Path) -> None:
    """Overlay writes by top-level directory, and what was made directly under the new root."""
    for top in sorted(written.iterdir()) if written.is_dir() else ():
        _take(top, layer / top.name)
    for top in sorted(rootfs.iterdir()):
        if top.name not in _MACHINE_PLACES and not top.is_symlink():
            _take(top, layer / top.name)


_MACHINE_PLACES = {"proc", "sys", "dev", "tmp", "run", "etc", *SYSTEM}


def _take(source: Path, goal: Path) -> None:
    """Copy a written tree; a whiteout (a 0:0 device, or overlayfs' attribute) removes what is below it."""
    for path in [source, *sorted(source.rglob("*"))]:
        target = goal / path.relative_to(source)
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
        elif path.is_file() and _worth_keeping(path, source):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


def _worth_keeping(path: Path, source: Path) -> bool:
    """Mount points the sandbox made are empty files and directories outside the layers; they carry nothing."""
    return source.name not in ("root", "home", "var") or path.stat().st_size > 0
