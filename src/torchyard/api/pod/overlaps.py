"""Finds overlapping ports and paths of a pod without comparing each with every other one.

Each `add` returns an iterator over the earlier entries that overlap with the new one, in the order in which they were
added. A caller that needs only the first few does not pay for the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from typing import Any, NamedTuple

from torchyard.api.objects import Object


class _Port(NamedTuple):
    number: int  # in the order of addition
    where: str
    host: tuple[Any, Any]  # port and address


class _PortIndex:
    """The ports with one container port and protocol, by host port and host address."""

    def __init__(self) -> None:
        self.all: list[_Port] = []
        self.by_host: defaultdict[tuple[Any, Any], list[_Port]] = defaultdict(list)
        self.by_host_port: defaultdict[Any, list[_Port]] = defaultdict(list)
        self.by_host_ip: defaultdict[Any, list[_Port]] = defaultdict(list)

    def add(self, port: _Port) -> None:
        self.all.append(port)
        self.by_host[port.host].append(port)
        self.by_host_port[port.host[0]].append(port)
        self.by_host_ip[port.host[1]].append(port)

    def overlapping(self, host_port: Any, host_ip: Any) -> list[list[_Port]]:
        """Lists of all ports that overlap with this one; an unset host port or address overlaps with any other."""
        if host_port and host_ip:
            hosts = [(host_port, host_ip), (host_port, ""), ("", host_ip), ("", "")]
            return [self.by_host[host] for host in hosts if host in self.by_host]
        if host_port:
            return [self.by_host_port[key] for key in (host_port, "") if key in self.by_host_port]
        if host_ip:
            return [self.by_host_ip[key] for key in (host_ip, "") if key in self.by_host_ip]
        return [self.all]


class PortOverlaps:
    """Container ports that are equal, or equal except for an unset host port or address."""

    def __init__(self) -> None:
        self._indexes: defaultdict[tuple[Any, Any], _PortIndex] = defaultdict(_PortIndex)
        self._count = 0

    def add(self, where: str, port: Object) -> Iterator[tuple[str, bool]]:
        """Yields where each overlapping port is, and whether it is equal; then adds the port."""
        index = self._indexes[port.get("containerPort"), port.get("protocol")]
        host = (port.get("hostPort") or "", port.get("hostIP") or "")
        for other in merge(*index.overlapping(*host)):
            yield other.where, other.host == host
        self._count += 1
        index.add(_Port(self._count, where, host))


class _File(NamedTuple):
    number: int  # in the order of addition
    path: str
    source: str


@dataclass(slots=True)
class _Directory:
    """A node of the tree of paths: the files at this path, and those below it."""

    children: dict[str, _Directory] = field(default_factory=dict)
    files: list[_File] = field(default_factory=list)
    below: list[_File] = field(default_factory=list)


class PathOverlaps:
    """Paths of which one is a directory of the other."""

    def __init__(self) -> None:
        self._root = _Directory()
        self._count = 0

    def add(self, path: str, source: str) -> Iterator[tuple[str, str]]:
        """Yields path and source of each overlapping file; then adds the file."""
        above = [self._root]
        for part in path.split("/"):
            above.append(above[-1].children.setdefault(part, _Directory()))
        directory = above.pop()
        for other in merge(*(parent.files for parent in above if parent.files), directory.below):
            yield other.path, other.source
        self._count += 1
        entry = _File(self._count, path, source)
        directory.files.append(entry)
        for parent in above:
            parent.below.append(entry)
