"""A pod's namespaces, entered by its shim in two steps: `prepare` needs no pod, `configure` applies the config of one.

`pod.json` in the pod's directory says what it gets; the agent writes it. Containers get mount and pid namespaces of
their own on top.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from torchyard.node.shim import linux, namespace_holder, netlink

INTERFACE = "eth0"


def prepare(namespaces: namespace_holder.Namespaces, *, wired: bool) -> None:
    """User and host name, and for a wired pod a network of its own: the kernel takes longest over that."""
    linux.setns(namespaces.user, linux.NEWUSER)
    linux.unshare(linux.NEWUTS)
    if wired:
        _add_veth(namespaces)


def configure(plan: dict[str, Any]) -> None:
    """Host name, volumes in memory, address; and the machine's mounts, only now, so that the newest ones are there."""
    linux.unshare(linux.NEWNS)
    # what the machine mounts later (a disk, a share) still shows up in hostPath volumes
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_SLAVE)
    linux.set_hostname(plan["hostname"])
    for one in plan["tmpfs"]:
        _mount_tmpfs(one)
    if plan["network"]:
        _take_address(plan["network"])


def _mount_tmpfs(volume: dict[str, Any]) -> None:
    size = f",size={volume['size']}" if volume["size"] else ""
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", volume["path"], "tmpfs", flags=flags, data=f"mode=1777{size}")


def _add_veth(namespaces: namespace_holder.Namespaces) -> None:
    """A network namespace with a cable to the cluster's bridge."""
    linux.unshare(linux.NEWNET)
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    far = f"yard{os.getpid()}"
    linux.setns(namespaces.network, linux.NEWNET)
    try:
        netlink.add_veth(far, INTERFACE, peer_namespace=own, bridge=namespaces.bridge)
    except FileExistsError:  # left by a shim of the same number that was killed
        netlink.remove_link(far)
        netlink.add_veth(far, INTERFACE, peer_namespace=own, bridge=namespaces.bridge)
    linux.setns(own, linux.NEWNET)
    os.close(own)
    netlink.link_up("lo")
    # as container runtimes do: any user of the pod may serve port 80 and ping
    _set("net/ipv4/ip_unprivileged_port_start", "0")
    with contextlib.suppress(OSError):
        _set("net/ipv4/ping_group_range", "0 2147483647")


def _take_address(network: dict[str, Any]) -> None:
    netlink.link_up(INTERFACE)
    netlink.add_address(INTERFACE, network["address"], network["prefix"])
    netlink.add_default_route(network["gateway"])


def _set(name: str, value: str) -> None:
    descriptor = os.open(f"/proc/sys/{name}", os.O_WRONLY)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)
