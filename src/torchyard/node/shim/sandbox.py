"""The namespaces of one pod, entered by its shim: user, mount, host name, network.

`pod.json` in the pod's directory says which; the agent writes it. Containers get mount and pid namespaces of their own
on top.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from torchyard.node.shim import anchor, linux, netlink, record

INTERFACE = "eth0"


def enter(pod: str, spaces: anchor.Spaces | None) -> None:
    plan = record.read(f"{pod}/pod.json")
    if plan is None:
        raise FileNotFoundError(f"{pod}/pod.json")
    if not plan["sandboxed"]:
        return
    if spaces is None:
        raise OSError("this keeper was started without namespaces")
    linux.setns(spaces.user, linux.NEWUSER)
    linux.unshare(linux.NEWNS | linux.NEWUTS)
    # what the machine mounts later (a disk, a share) still shows up in hostPath volumes
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_SLAVE)
    linux.set_hostname(plan["hostname"])
    for one in plan["tmpfs"]:
        _mount_tmpfs(one)
    if plan["network"]:
        _wire(plan["network"], spaces.network)


def _mount_tmpfs(volume: dict[str, Any]) -> None:
    size = f",size={volume['size']}" if volume["size"] else ""
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", volume["path"], "tmpfs", flags=flags, data=f"mode=1777{size}")


def _wire(network: dict[str, Any], cluster: int) -> None:
    """A network namespace of the pod's own, with a cable to the cluster's bridge."""
    linux.unshare(linux.NEWNET)
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    far = network["cable"]
    linux.setns(cluster, linux.NEWNET)
    try:
        netlink.add_veth(far, INTERFACE, peer_namespace=own, bridge=network["bridge"])
    except FileExistsError:  # left by a shim that was killed
        netlink.remove_link(far)
        netlink.add_veth(far, INTERFACE, peer_namespace=own, bridge=network["bridge"])
    linux.setns(own, linux.NEWNET)
    netlink.link_up("lo")
    netlink.link_up(INTERFACE)
    netlink.add_address(INTERFACE, network["address"], network["prefix"])
    netlink.add_default_route(network["gateway"])
    # as container runtimes do: any user of the pod may serve port 80 and ping
    _set("net/ipv4/ip_unprivileged_port_start", "0")
    with contextlib.suppress(OSError):
        _set("net/ipv4/ping_group_range", "0 2147483647")
    os.close(own)


def _set(name: str, value: str) -> None:
    descriptor = os.open(f"/proc/sys/{name}", os.O_WRONLY)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)
