"""A pod's namespaces, entered by its shim in two steps: `prepare` needs no pod, `configure` applies the config of one.

Containers get mount, pid and cgroup namespaces of their own on top.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from torchyard.node.shim import linux, namespace_holder, netlink

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import PodNetwork, SandboxConfig, TmpfsVolume

INTERFACE = "eth0"
_IPC_SYSCTLS = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


def prepare(namespaces: namespace_holder.Namespaces, *, has_network: bool) -> None:
    """User and UTS namespaces, and for a pod with a network that namespace too: it takes the kernel longest."""
    linux.setns(namespaces.user, linux.NEWUSER)
    linux.unshare(linux.NEWUTS)
    if has_network:
        _add_veth(namespaces)


def configure(config: SandboxConfig) -> None:
    """Mounts, IPC, host name, tmpfs volumes, address. The mount namespace only now: it has the newest mounts."""
    linux.unshare(linux.NEWNS | (0 if config.get("ipc") == "NODE" else linux.NEWIPC))
    # What the machine mounts later (a disk, a share) still shows up in hostPath volumes.
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_SLAVE)
    linux.set_hostname(config["hostname"])
    for volume in config["tmpfs"]:
        _mount_tmpfs(volume)
    if config["network"]:
        _add_address(config["network"])
    for name, value in config.get("sysctls", {}).items():
        if not _is_of_pod(name, config):
            raise PermissionError(errno.EPERM, f"sysctl {name} is the machine's, not the pod's")
        _sysctl(name.replace(".", "/"), value)


def _is_of_pod(name: str, config: SandboxConfig) -> bool:
    """Whether a sysctl belongs to a namespace that the pod has for itself."""
    if name.startswith("net."):
        return config["network"] is not None
    return name.startswith(_IPC_SYSCTLS) and config.get("ipc") != "NODE"


def _mount_tmpfs(volume: TmpfsVolume) -> None:
    size = f",size={volume['size']}" if volume["size"] else ""
    flags = linux.MS_NOSUID | linux.MS_NODEV
    owner = f"mode=3777,gid={volume['gid']}" if "gid" in volume else "mode=1777"
    linux.mount("tmpfs", volume["path"], "tmpfs", flags=flags, data=f"{owner}{size}")


def _add_veth(namespaces: namespace_holder.Namespaces) -> None:
    """A network namespace with a veth pair to the cluster's bridge."""
    linux.unshare(linux.NEWNET)
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    peer = f"yard{os.getpid()}"
    linux.setns(namespaces.network, linux.NEWNET)
    try:
        netlink.add_veth(peer, INTERFACE, peer_namespace=own, bridge=namespaces.bridge)
    except FileExistsError:  # left by a killed shim that had the same pid
        netlink.remove_link(peer)
        netlink.add_veth(peer, INTERFACE, peer_namespace=own, bridge=namespaces.bridge)
    linux.setns(own, linux.NEWNET)
    os.close(own)
    netlink.link_up("lo")
    # As container runtimes do: any user of the pod may serve port 80 and ping.
    _sysctl("net/ipv4/ip_unprivileged_port_start", "0")
    with contextlib.suppress(OSError):
        _sysctl("net/ipv4/ping_group_range", "0 2147483647")


def _add_address(network: PodNetwork) -> None:
    netlink.link_up(INTERFACE)
    netlink.add_address(INTERFACE, network["address"], network["prefix"])
    netlink.add_default_route(network["gateway"])


def _sysctl(name: str, value: str) -> None:
    descriptor = os.open(f"/proc/sys/{name}", os.O_WRONLY)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)
