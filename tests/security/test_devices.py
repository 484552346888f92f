"""The devices of a container: the default ones of container runtimes, and no way to change the machine's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.node import support
from tests.security.sandbox_support import output_of

from torchyard.node.images.model import Image, ImageConfig
from torchyard.node.pod.container_config import ContainerOptions, container_mounts
from torchyard.node.pod.pod_dir import PodDir
from torchyard.node.runtime import rootfs_steps
from torchyard.node.runtime.rootfs_steps import Mount, RootfsSource
from torchyard.node.settings import NodeSettings
from torchyard.node.volumes.mounter import MountedVolume


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[support.ShimHarness]:
    support.need_sandbox()
    (tmp_path / "node").mkdir()
    async with support.shim_harness(tmp_path / "node") as harness:
        yield harness


DEFAULT = {
    "fd",
    "full",
    "mqueue",
    "null",
    "ptmx",
    "pts",
    "random",
    "stderr",
    "stdin",
    "stdout",
    "tty",
    "urandom",
    "zero",
}


async def test_an_ordinary_container_has_the_default_devices_only(harness: support.ShimHarness) -> None:
    names = set((await output_of(harness, "ls /dev")).split()) - {".machine", "shm", "termination-log"}
    assert names == DEFAULT


async def test_a_privileged_container_has_the_machines_special_devices(harness: support.ShimHarness) -> None:
    special = {name for name in ("fuse", "kvm") if Path("/dev", name).exists()}
    names = set((await output_of(harness, "ls /dev", privileged=True)).split())
    assert special <= names


def test_allocated_devices_are_mounted() -> None:
    root = rootfs_steps.RootfsSource(machine=True)
    steps = rootfs_steps.rootfs_steps(root, [], scratch=Path("/x"), devices=[Path("/dev/nvidia0")])
    assert [step["source"] for step in steps if step.get("source", "").startswith("/dev/nvidia")] == ["/dev/nvidia0"]


async def test_devices_work_and_cannot_be_changed(harness: support.ShimHarness) -> None:
    """They are the machine's own files: a mode or owner set in a pod would hold for the machine."""
    script = (
        "echo x > /dev/null && head -c 4 /dev/zero | wc -c && head -c 4 /dev/urandom | wc -c\n"
        "for name in null zero full tty random; do chmod $(stat -c %a /dev/$name) /dev/$name && echo changed $name; "
        "touch /dev/$name && echo touched $name; chown 0:0 /dev/$name && echo owned $name; done 2>/dev/null\n"
        "for name in /proc/keys /proc/timer_list; do chmod 666 $name && echo changed $name; done 2>/dev/null; true"
    )
    assert (await output_of(harness, script)).split() == ["4", "4"]


async def test_a_container_cannot_create_a_device(harness: support.ShimHarness) -> None:
    script = "mknod /tmp/vda b 254 0 2>/dev/null && head -c 1 /tmp/vda >/dev/null 2>&1 && echo read; true"
    assert await output_of(harness, script) == ""


async def test_device_files_in_a_volume_cannot_be_opened(harness: support.ShimHarness) -> None:
    """A container runtime's device cgroup refuses them, whatever directory they are in."""
    mounts = [Mount(Path("/dev"), "/volume", no_devices=True), Mount(Path("/dev"), "/kept", read_only=True)]
    script = "(echo x > /volume/null) 2>/dev/null && echo opened; (echo x > /kept/null) && echo kept; true"
    assert await output_of(harness, script, mounts=mounts) == "kept"


@pytest.mark.parametrize("privileged", [False, True])
def test_volumes_bring_no_devices_to_an_ordinary_container(tmp_path: Path, privileged: bool) -> None:
    container = {
        "name": "main",
        "securityContext": {"privileged": privileged},
        "volumeMounts": [{"name": "host", "mountPath": "/host"}],
    }
    options = ContainerOptions(
        pod={"metadata": {"name": "p"}, "spec": {}},
        container=container,
        attempt=0,
        image=Image("busybox", "sha256:0", RootfsSource(machine=True), ImageConfig()),
        env={},
        volumes={"host": MountedVolume(tmp_path)},
        pod_dir=PodDir(tmp_path),
        settings=NodeSettings(tmp_path),
        sandboxed=True,
    )
    mounts = {mount.target: mount.no_devices for mount in container_mounts(options, tmp_path / "message")}
    assert mounts["/host"] is not privileged
