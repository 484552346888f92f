"""How a job's replicas meet on a machine that cannot give pods networks of their own.

All pods then share the machine's ports, and two jobs that use the same port would conflict. A port that is in use is
replaced by a free one, the same for all pods of the job. Without a hosts file the name of the first replica becomes
127.0.0.1. Only environment variables are rewritten, never a program's own arguments.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable, Mapping

from torchyard.api.objects import Object

Ports = Mapping[str, int]  # as requested, in digits → as used

_PORTS = {"MASTER_PORT", "PET_MASTER_PORT", "TORCHYARD_ELASTIC_SERVE"}
_HOSTS = {"MASTER_ADDR", "PET_MASTER_ADDR"}
_ENDPOINTS = {"PET_RDZV_ENDPOINT", "TORCHYARD_ELASTIC_COORDINATOR"}
_LOCALHOST = "127.0.0.1"


def requested(containers: Iterable[Object]) -> list[str]:
    """The rendezvous ports that the variables of a pod name."""
    ports = []
    for container in containers:
        for variable in container.get("env") or ():
            name, value = variable["name"], variable.get("value") or ""
            if name in _ENDPOINTS:
                value = value.rpartition(":")[2]
            if name in _PORTS | _ENDPOINTS and value.isascii() and value.isdigit():
                ports.append(value)
    return sorted(set(ports))


def choose(ports: Iterable[str], *, peers: Iterable[Ports], others: Iterable[Ports]) -> dict[str, int]:
    """The ports that the pod's peers use already; otherwise the requested port if it is free, or a free one."""
    agreed = {port: number for used in peers for port, number in used.items()}
    taken = {number for used in others for number in used.values()}
    return {port: agreed[port] if port in agreed else _free(int(port), taken) for port in ports}


def _free(preferred: int, taken: Collection[int]) -> int:
    if preferred not in taken and _can_bind(preferred):
        return preferred
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


def rewrite(container: Object, ports: Ports, is_peer: Callable[[str], bool]) -> Object:
    """The container with the hosts and ports used here. `is_peer`: whether a name is to become 127.0.0.1."""
    if not container.get("env"):
        return container

    def host(name: str) -> str:
        return _LOCALHOST if is_peer(name) else name

    def new_value(name: str, value: str) -> str:
        if name in _PORTS:
            return str(ports.get(value, value))
        if name in _HOSTS:
            return host(value)
        if name in _ENDPOINTS and ":" in value:
            endpoint_host, _, port = value.rpartition(":")
            return f"{host(endpoint_host)}:{ports.get(port, port)}"
        return value

    env = [
        {**variable, "value": new_value(variable["name"], variable["value"])} if variable.get("value") else variable
        for variable in container["env"]
    ]
    return {**container, "env": env}
