"""A pod's namespaces, entered by its shim in two steps: `create_own` or `enter_shared` needs no pod,
`configure` applies the config of one.

The first step creates the network namespace, if the pod has one: it takes the kernel longest.

Containers get mount, pid and cgroup namespaces of their own on top.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from torchyard.node.shim import linux, namespace_holder, netlink, shifted_ids

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import PodNetwork, SandboxConfig, TmpfsVolume

INTERFACE = "eth0"
_IPC_SYSCTLS = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


def create_own() -> None:
    """A user namespace of the pod's own, which has no ids yet, with UTS and network namespaces that belong to it.

    It is no child of the one that other pods share: root of a parent has all capabilities in it. The zygote connects
    the network namespace, from outside.
    """
    linux.unshare(linux.NEWUSER | linux.NEWUTS | linux.NEWNET)


def enter_shared(namespaces: namespace_holder.Namespaces, *, has_network: bool) -> None:
    """The user namespace of the node, a UTS namespace and, for a pod with a network, that namespace too."""
    linux.setns(namespaces.user, linux.NEWUSER)
    linux.unshare(linux.NEWUTS)
    if has_network:
        _add_veth(namespaces)


def configure(config: SandboxConfig) -> None:
    """Mounts, IPC, host name, tmpfs volumes, address. The mount namespace only now: it has the newest mounts."""
    sysctls = config.get("sysctls", {})
    for name in sysctls:
        if not _is_of_pod(name, config):
            raise PermissionError(errno.EPERM, f"sysctl {name} is the machine's, not the pod's")
    shifted = bool(config.get("ids"))
    if shifted:
        of_ipc = {name: value for name, value in sysctls.items() if name.startswith(_IPC_SYSCTLS)}
        sysctls = {name: value for name, value in sysctls.items() if name not in of_ipc}
        shifted_ids.enter_ipc_namespace(of_ipc)
        if config["network"]:
            _allow_pings(shifted_ids.COUNT - 1)
    linux.unshare(linux.NEWNS | (0 if shifted or config.get("ipc") == "NODE" else linux.NEWIPC))
    # What the machine mounts later (a disk, a share) still shows up in hostPath volumes.
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_SLAVE)
    linux.set_hostname(config["hostname"])
    for volume in config["tmpfs"]:
        _mount_tmpfs(volume)
    if config["network"]:
        _add_address(config["network"])
    for name, value in sysctls.items():
        _sysctl(name.replace(".", "/"), value)


def _is_of_pod(name: str, config: SandboxConfig) -> bool:
    """Whether a sysctl belongs to a namespace that the pod has for itself."""
    if name.startswith("net."):
        return config["network"] is not None
    return name.startswith(_IPC_SYSCTLS) and config.get("ipc") != "NODE"


def _mount_tmpfs(volume: TmpfsVolume) -> None:
    size = f",size={volume['size']}" if volume["size"] else ""
    flags = linux.MS_NOSUID | linux.MS_NODEV
    # Root of the pod, by its number there: the shim itself is another user where ids are shifted.
    owner = f"mode=3777,uid=0,gid={volume['gid']}" if "gid" in volume else "mode=1777,uid=0,gid=0"
    linux.mount("tmpfs", volume["path"], "tmpfs", flags=flags, data=f"{owner}{size}")


def _add_veth(namespaces: namespace_holder.Namespaces) -> None:
    """A network namespace with a veth pair to the cluster's bridge."""
    linux.unshare(linux.NEWNET)
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    peer = f"yard{os.getpid()}"
    linux.setns(namespaces.network, linux.NEWNET)
    _connect(peer, own, namespaces.bridge)
    linux.setns(own, linux.NEWNET)
    os.close(own)


def attach_network(namespaces: namespace_holder.Namespaces, shim: int) -> None:
    """Connect the network namespace of a shim with the cluster's bridge, from a process that is outside both."""
    machine = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    own = os.open(f"/proc/{shim}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        linux.setns(namespaces.network, linux.NEWNET)
        try:
            _connect(f"yard{shim}", own, namespaces.bridge)
        finally:
            linux.setns(machine, linux.NEWNET)
    finally:
        os.close(own)
        os.close(machine)


def set_up_network() -> None:
    """What needs no address."""
    netlink.link_up("lo")
    # As container runtimes do: any user of the pod may serve port 80 and ping.
    _sysctl("net/ipv4/ip_unprivileged_port_start", "0")
    _allow_pings(2147483647)


def _allow_pings(largest_group: int) -> None:
    with contextlib.suppress(OSError):  # the user namespace does not have all of these groups
        _sysctl("net/ipv4/ping_group_range", f"0 {largest_group}")


def _connect(peer: str, namespace: int, bridge: str) -> None:
    try:
        netlink.add_veth(peer, INTERFACE, peer_namespace=namespace, bridge=bridge)
    except FileExistsError:  # left by a killed shim that had the same pid
        netlink.remove_link(peer)
        netlink.add_veth(peer, INTERFACE, peer_namespace=namespace, bridge=bridge)


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
