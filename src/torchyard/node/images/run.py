"""RUN of a Dockerfile: one command in a sandbox. What it writes becomes the new layer of the image."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard import files
from torchyard.api.errors import YardError
from torchyard.node.images import tree
from torchyard.node.images.written import WrittenTree
from torchyard.node.network.addresses import NetworkSettings
from torchyard.node.resources import cgroups
from torchyard.node.runtime.rootfs_steps import (
    CONFIGURATION,
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
from torchyard.node.threads import in_thread

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import (
        ContainerConfig,
        ContainerRecord,
        RootfsStep,
        SandboxConfig,
        ZygoteSettings,
    )

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
    lower = [path for path in root.layers if path != layer]
    if root.machine:
        lower.append(Path("/"))
        root = replace(root, layers=(_writable_machine(state / "machine"), *root.layers))
    network_files = _copy_network_files(state)
    mounts = [Mount(copy, f"/etc/{copy.name}") for copy in network_files]
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
        zygote = ZygoteClient(state, _zygote_settings())
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
        for copy, content in network_files.items():
            if copy.read_bytes() != content:
                hint = "a container gets this file from its node; set hostAliases or dnsConfig in the pod"
                raise RunError(f"/etc/{copy.name} was changed, which an image cannot contain", hint=hint)
        await in_thread(_merge, steps, layer, lower)
    finally:
        await stop_pods(state)
        await in_thread(files.remove_tree, state)


def _zygote_settings() -> ZygoteSettings:
    """A command has the limits of a pod."""
    return {
        "namespaces": True,
        "network": NetworkSettings().for_namespace_holder(),
        "pids": cgroups.pids_limit(cgroups.find(), cgroups.default_pids_limit()),
    }


def _copy_network_files(state: Path) -> dict[Path, bytes]:
    """Copies of the machine's files that a command may read but not change, with their content."""
    copies = {}
    for name in ("hosts", "resolv.conf"):
        file, copy = Path("/etc", name), state / name
        if file.exists():
            copies[copy] = file.read_bytes()
            copy.write_bytes(copies[copy])
    return copies


def _writable_machine(layer: Path) -> Path:
    """A lowest layer with the machine's directories, so that overlays cover them, and a copy of its files in /etc."""
    for name in SYSTEM:
        if Path("/", name).is_dir() and not Path("/", name).is_symlink():
            (layer / name).mkdir(parents=True)
    (layer / "etc").mkdir(parents=True)
    with tree.opened(layer / "etc") as copy:
        for name in CONFIGURATION:
            path = Path("/etc", name).resolve()
            if path.is_dir():
                (layer / "etc" / name).mkdir(parents=True, exist_ok=True)
                with tree.opened(path) as source, tree.opened(layer / "etc" / name) as target:
                    tree.copy(source, target, path=f"etc/{name}", skip_unreadable=True)
            elif path.is_file():
                (layer / "etc" / name).parent.mkdir(parents=True, exist_ok=True)
                with tree.opened(path.parent) as source:
                    tree.copy_file(path.name, source, name, copy, path=f"etc/{name}")
    return layer


async def _run_to_end(shim: ShimClient) -> ContainerRecord:
    async with await shim.channel() as channel:
        channel.send({"op": "subscribe"})
        await channel.receive()
        record = await shim.start("run", 0)
        while record["state"] != records.EXITED:
            await channel.receive()
            record = records.read_record(str(shim.pod), "run", 0) or record
    return record


def _merge(steps: list[RootfsStep], layer: Path, lower: list[Path]) -> None:
    """Merge the upper directories of all overlays, without the mount points that the sandbox created in them."""
    written = WrittenTree(layer, steps=steps, lower=lower)
    for step in steps:
        if step["op"] == "overlay":
            try:
                written.merge(Path(step["upper"]), step["target"])
            except OSError as error:
                raise RunError(f"what it wrote to {step['target']} cannot be kept: {error}") from error
