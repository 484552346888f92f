"""The pods of one job on this node: they share /dev/shm and, without networks of their own, rendezvous ports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.api.objects import Object
from torchyard.core.pod.view import main_containers
from torchyard.node.network import rendezvous_ports
from torchyard.node.shim import records

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import PodRecord


def all_records(pods: Path) -> Iterator[PodRecord]:
    """The record of every pod of a node."""
    for path in pods.iterdir():
        if record := records.read_pod(str(path)):
            yield record


def group_of(pod: Object, record: PodRecord | None) -> str:
    """The job that a pod belongs to, or else the pod itself.

    The creator of a pod chooses the uid of its owner: with the namespace it cannot name a job of another one.
    """
    owners = pod["metadata"].get("ownerReferences") or ()
    owner = next((str(reference["uid"]) for reference in owners if reference.get("controller")), "")
    if owner:
        return f"{pod['metadata']['namespace']}/{owner}"
    return (record.get("group", "") if record else "") or str(pod["metadata"]["uid"])


def choose_ports(pod: Object, group: str, pods: Path) -> dict[str, int]:
    """Ports at which the pod meets its peers in the machine's own network, which other jobs use too."""
    requested = rendezvous_ports.requested(main_containers(pod))
    if not requested:
        return {}
    others = list(all_records(pods))
    return rendezvous_ports.choose(
        requested,
        peers=[record.get("ports") or {} for record in others if record.get("group") == group],
        others=[
            record.get("ports") or {}
            for record in others
            if record.get("group") != group and not record.get("released")
        ],
    )
