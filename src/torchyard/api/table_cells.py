"""Texts of table cells: ages, labels, container lists. The formats are those of upstream's printers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from torchyard.api.columns import Column
from torchyard.api.objects import Object
from torchyard.api.selectors import from_object
from torchyard.api.times import human_duration

UNKNOWN = "<unknown>"
NONE = "<none>"
UNSET = "<unset>"

NAME = Column("Name", format="name", description="The name of the object.")
AGE = Column("Age", description="The time since the object was created.")
CREATED_AT = Column("Created At", "date", description="The time at which the object was created.")


def age(timestamp: str | None, now: datetime) -> str:
    """Format the time since a timestamp."""
    if not timestamp:
        return UNKNOWN
    return human_duration(now - datetime.fromisoformat(timestamp))


def age_of(obj: Object, now: datetime) -> str:
    """Format the age of an object."""
    return age(obj["metadata"].get("creationTimestamp"), now)


def name_of(obj: Object) -> str:
    name: str = obj["metadata"].get("name", "")
    return name


def format_labels(labels: Mapping[str, str] | None) -> str:
    """Format labels as `a=1,b=2`."""
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) if labels else NONE


def format_selector(selector: Mapping[str, Any] | None) -> str:
    return str(from_object(selector)) or NONE if selector else NONE


def container_names_and_images(template_spec: Mapping[str, Any]) -> list[str]:
    """Return two cells: the names and the images."""
    listed = template_spec.get("containers") or ()
    return [
        ",".join(container.get("name", "") for container in listed),
        ",".join(container.get("image", "") for container in listed),
    ]


def truncate_list(first: Sequence[str], total: int, empty: str) -> str:
    """Join a list of which `first` is the beginning."""
    text = ",".join(first)
    return f"{text} + {total - len(first)} more..." if total > len(first) else text or empty


def condition_status(conditions: Iterable[Mapping[str, Any]] | None, kind: str) -> str:
    """Return the status of a condition, or "" without such a condition."""
    for condition in conditions or ():
        if condition.get("type") == kind:
            return str(condition.get("status", ""))
    return ""


def format_bool(value: bool | None) -> str:
    """Format a boolean."""
    return UNSET if value is None else "true" if value else "false"


def load_balancer(status: Mapping[str, Any] | None) -> str:
    """Return the addresses of a load balancer, sorted."""
    ingress = ((status or {}).get("loadBalancer") or {}).get("ingress") or ()
    return ",".join(sorted({entry.get("ip") or entry.get("hostname") or "" for entry in ingress} - {""}))


CONTAINERS = (
    Column("Containers", description="The containers of the pod template.", priority=1),
    Column("Images", description="The images of the containers, in the same order.", priority=1),
)
SELECTOR = Column("Selector", description="The labels that select the pods.", priority=1)
