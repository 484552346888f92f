"""Routes from the machine to the addresses of pods and Services: `yard up --route-pods`.

A veth pair connects the machine with the network of the pods. It is routed, not bridged, and needs no rule of the
machine's firewall: the pods' side accepts only packets that come from the machine's own end, because it has no way back
to any other address (strict reverse path filtering, which no pod can change). What others send is dropped there, even
on a machine that forwards packets. The pods' side has no other way out either: a pod can use the link to reach the
machine, and nothing behind it.

The pair ends with the pods' network namespace, or with `disconnect`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from torchyard.api.cluster import node_messages as messages
from torchyard.api.errors import YardError
from torchyard.node.shim import linux, namespace_holder, netlink, records

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ClusterNetworkConfig

_Result = TypeVar("_Result")

# The names claim the link: one plane of a machine has it.
MACHINE_END, POD_END = "yard-pods", "machine"
# Link-local: Services and proxies never connect to such an address.
_LINK = ipaddress.ip_network("169.254.244.0/31")
MACHINE_ADDRESS, POD_ADDRESS = str(_LINK[0]), str(_LINK[1])
_ROUTES = Path("/proc/net/route")
_SYSCTLS = Path("/proc/sys/net")


def connect(root: Path, network: ClusterNetworkConfig) -> None:
    """Have the routes. Raises YardError with the reason if that is not possible."""
    try:
        with _pod_namespace(root) as namespace:
            _in_thread(lambda: _connect(namespace, network))
    except OSError as error:
        raise YardError(messages.pods_not_routed(str(error)), hint=messages.PODS_NOT_ROUTED_HINT) from error


def disconnect(root: Path) -> None:
    """Remove the link of this plane, if it has one."""
    if not _exists(MACHINE_END):
        return
    with contextlib.suppress(OSError), _pod_namespace(root) as namespace:
        _in_thread(lambda: _inside(namespace, lambda: netlink.remove_link(POD_END)))


def overlapping(table: str, ranges: list[str]) -> str:
    """A route of the machine that an address of the ranges uses now, other than the default route; empty: none.

    `table` is in the format of /proc/net/route.
    """
    wanted = [ipaddress.ip_network(each) for each in ranges]
    for line in table.splitlines()[1:]:
        fields = line.split()
        address, mask = (socket.inet_ntoa(int(fields[column], 16).to_bytes(4, "little")) for column in (1, 7))
        route = ipaddress.ip_network(f"{address}/{mask}")
        if route.prefixlen and any(route.overlaps(each) for each in wanted):
            return f"{route} of {fields[0]}"
    return ""


def _connect(namespace: int, network: ClusterNetworkConfig) -> None:
    if _inside(namespace, lambda: _exists(POD_END)):
        return  # from an earlier start, with pods that were kept
    services = f"{network['services']}/{network['services_prefix']}"
    if _exists(MACHINE_END):
        raise FileExistsError(messages.ROUTED_BY_OTHER_PLANE)
    if taken := overlapping(_ROUTES.read_text(), [network["pods"], services, str(_LINK)]):
        raise FileExistsError(messages.route_taken(taken))
    netlink.add_veth(MACHINE_END, POD_END, peer_namespace=namespace)
    try:
        # The pods' end first: nothing comes in before its filter is set.
        _inside(namespace, lambda: _set_up_pod_end(network["bridge"]))
        _write("ipv6/conf", MACHINE_END, "disable_ipv6", "1", optional=True)
        netlink.add_address(MACHINE_END, MACHINE_ADDRESS, _LINK.prefixlen, scope=netlink.SCOPE_LINK)
        netlink.link_up(MACHINE_END)
        for cidr in (network["pods"], services):
            address, _, prefix = cidr.partition("/")
            netlink.add_route(address, int(prefix), gateway=POD_ADDRESS, source=MACHINE_ADDRESS)
    except BaseException:
        netlink.remove_link(MACHINE_END)
        raise


def _set_up_pod_end(bridge: str) -> None:
    _write("ipv6/conf", POD_END, "disable_ipv6", "1", optional=True)
    _write("ipv4/conf", POD_END, "rp_filter", "1")
    for name in (POD_END, bridge):
        _write("ipv4/conf", name, "forwarding", "1")
    netlink.add_address(POD_END, POD_ADDRESS, _LINK.prefixlen, scope=netlink.SCOPE_LINK)
    netlink.link_up(POD_END)


def _exists(interface: str) -> bool:
    return interface in (name for _, name in socket.if_nameindex())


def _write(kind: str, interface: str, name: str, value: str, *, optional: bool = False) -> None:
    try:
        (_SYSCTLS / kind / interface / name).write_text(value)
    except OSError:
        if not optional:
            raise


@contextlib.contextmanager
def _pod_namespace(root: Path) -> Iterator[int]:
    record = records.read(str(root / namespace_holder.RECORD))
    if not record:
        raise FileNotFoundError(messages.NO_POD_NETWORK)
    descriptor = os.open(f"/proc/{record['pid']}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _inside(namespace: int, act: Callable[[], _Result]) -> _Result:
    machine = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        linux.setns(namespace, linux.NEWNET)
        try:
            return act()
        finally:
            linux.setns(machine, linux.NEWNET)
    finally:
        os.close(machine)


def _in_thread(act: Callable[[], None]) -> None:
    """A thread of its own changes its namespace: one that could not change it back must not serve anything else."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:  # raised again in the caller
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
