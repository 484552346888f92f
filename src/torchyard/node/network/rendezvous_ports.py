"""How a job's replicas find each other on a machine that cannot give pods networks of their own.

There all pods share the machine's ports, and two jobs that ask for the same one would meet. The port of a job is then
replaced by a free one where it is taken, the same for all its pods; and where there is no hosts file either, the name
of the first replica becomes the machine itself. Only variables are looked at, never a program's own arguments.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable, Mapping

from torchyard.api.objects import Object

Ports = Mapping[str, int]  # as asked for, in digits → as used

_PORTS = {"MASTER_PORT", "PET_MASTER_PORT", "TORCHYARD_ELASTIC_SERVE"}
_HOSTS = {"MASTER_ADDR", "PET_MASTER_ADDR"}
_ENDPOINTS = {"PET_RDZV_ENDPOINT", "TORCHYARD_ELASTIC_COORDINATOR"}
_HERE = "127.0.0.1"


def ports_of(containers: Iterable[Object]) -> list[str]:
    """The ports at which the pod meets its peers, as its variables name them."""
    found = []
    for container in containers:
        for variable in container.get("env") or ():
            name, value = variable["name"], variable.get("value") or ""
            if name in _ENDPOINTS:
                value = value.rpartition(":")[2]
            if name in _PORTS | _ENDPOINTS and value.isascii() and value.isdigit():
                found.append(value)
    return sorted(set(found))


def choose(asked: Iterable[str], *, peers: Iterable[Ports], others: Iterable[Ports]) -> dict[str, int]:
    """What the pod's peers use already; or else the port itself if nobody has it, or else a free one."""
    agreed = {port: number for ports in peers for port, number in ports.items()}
    taken = {number for ports in others for number in ports.values()}
    return {port: agreed[port] if port in agreed else _free(int(port), taken) for port in asked}


def _free(wanted: int, taken: Collection[int]) -> int:
    if wanted not in taken and _can_bind(wanted):
        return wanted
    while True:
        with socket.socket() as probe:
            probe.bind(("", 0))
            number = int(probe.getsockname()[1])
        if number not in taken:
            return number


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except (OSError, OverflowError):
            return False
    return True


def adjusted(container: Object, ports: Ports, is_peer: Callable[[str], bool]) -> Object:
    """The container with its meeting place as it is here. `is_peer`: whether a name must become the machine itself."""
    if not container.get("env"):
        return container

    def host(name: str) -> str:
        return _HERE if is_peer(name) else name

    def value_of(name: str, value: str) -> str:
        if name in _PORTS:
            return str(ports.get(value, value))
        if name in _HOSTS:
            return host(value)
        if name in _ENDPOINTS and ":" in value:
            where, _, port = value.rpartition(":")
            return f"{host(where)}:{ports.get(port, port)}"
        return value

    env = [
        {**one, "value": value_of(one["name"], one["value"])} if one.get("value") else one for one in container["env"]
    ]
    return {**container, "env": env}
