"""Which images the pods of a job wait for, from the events of the kubelet.

Kubernetes reports that a pull has begun and, in the message of its end, how large the image is; not how much of it has
arrived.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.api.pod.phases import container_statuses

_image = re.compile(r'[Pp]ull(?:ing|ed) image "([^"]*)"').search
_BEGIN, _END = "Pulling", ("Pulled", "Failed", "BackOff", "Started", "Killing")


@dataclass(frozen=True, slots=True)
class ImagePull:
    """`since` is RFC 3339. `result` is the message of its end, empty while it goes on."""

    image: str
    since: str
    result: str = ""

    def __str__(self) -> str:
        if self.result:
            return self.result
        return f"pulling image {self.image} since {self.since}; Kubernetes does not report how much has arrived"


def image_pull(events: list[Object], pod: str) -> ImagePull | None:
    """The last pull of an image for a pod. `events` are in the order in which they were last seen."""
    pull = None
    for event in events:
        if (event.get("involvedObject") or {}).get("name") != pod:
            continue
        reason, message = event.get("reason"), str(event.get("message") or "")
        match = _image(message)
        if reason == _BEGIN and match:
            pull = ImagePull(match[1], _time(event))
        elif reason in _END and pull is not None and not pull.result:
            pull = ImagePull(pull.image, pull.since, message)
    return pull


def is_creating(pod: Object) -> bool:
    """Whether a node creates the containers of a pod: it pulls images or mounts volumes, and says nothing else."""
    status = pod.get("status") or {}
    if status.get("phase") != "Pending" or not (pod.get("spec") or {}).get("nodeName"):
        return False
    waiting = [(container.get("state") or {}).get("waiting") or {} for container in container_statuses(pod)]
    return any(each.get("reason") in ("ContainerCreating", "PodInitializing") for each in waiting)


def _time(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])
