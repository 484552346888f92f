"""What a run would start, in words: its pods, their program and resources, its queue."""

from __future__ import annotations

import shlex
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.queue.names import PRIORITY
from torchyard.core.run.program import pod_specs, program_words
from torchyard.core.run.state import run_state
from torchyard.core.run.summary import count_replicas
from torchyard.core.run.waiting import queue_name

_MAX_PROGRAM = 100


def describe_job(job: Object) -> list[tuple[str, str]]:
    """Names and values: pods, program, image, resources, environment and queue; nothing that the job leaves open."""
    containers = [spec["containers"][0] for spec in pod_specs(job) if spec.get("containers")]
    if not containers:
        return []
    first = containers[0]
    rows = [
        ("pods", str(count_replicas(job)[1])),
        ("program", _shortened(shlex.join(program_words(job)))),
        ("image", ", ".join(dict.fromkeys(str(part["image"]) for part in containers if part.get("image")))),
        ("resources of a pod", _resources(first)),
        ("environment", ", ".join(str(variable["name"]) for variable in first.get("env") or ())),
        ("queue", _queue(job)),
    ]
    if run_state(job).state == "Suspended" or _is_suspended(job):
        rows.append(("suspended", "until it is resumed"))
    return [(name, value) for name, value in rows if value]


def _resources(container: Object) -> str:
    resources: Object = container.get("resources") or container.get("resourcesPerNode") or {}
    amounts: dict[str, Any] = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items())


def _queue(job: Object) -> str:
    priority = (job["metadata"].get("labels") or {}).get(PRIORITY, "")
    queue = queue_name(job)
    return f"{queue}, priority {priority}" if queue and priority else queue


def _is_suspended(job: Object) -> bool:
    spec = job.get("spec") or {}
    return bool(spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"))


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_PROGRAM else f"{line[:_MAX_PROGRAM]}…"
