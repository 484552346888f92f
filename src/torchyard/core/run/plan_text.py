"""What a run would start, in words: its pods, their program and resources, its queue."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.queue.names import PRIORITY
from torchyard.core.run.program import pod_specs, program_words
from torchyard.core.run.state import run_state
from torchyard.core.run.summary import count_replicas
from torchyard.core.run.waiting import queue_name

_MAX_PROGRAM = 100
_WRONG_SHAPE = (AttributeError, LookupError, OverflowError, TypeError, ValueError)


def describe_job(job: Object) -> list[tuple[str, str]]:
    """Names and values: pods, program, image, resources, environment and queue; nothing that the job leaves open.

    The manifest of a new job is described before the server has checked it: a value of a wrong shape is left out, and
    the server explains it when the job is applied.
    """
    rows = []
    for name, describe in _ROWS.items():
        try:
            value = describe(job)
        except _WRONG_SHAPE:
            continue
        if value:
            rows.append((name, value))
    return rows


def _containers(job: Object) -> list[Object]:
    """The first container of each replica type."""
    return [spec["containers"][0] for spec in pod_specs(job) if spec.get("containers")]


def _pods(job: Object) -> str:
    return str(count_replicas(job)[1]) if _containers(job) else ""


def _program(job: Object) -> str:
    return _shortened(shlex.join(program_words(job))) if _containers(job) else ""


def _images(job: Object) -> str:
    return ", ".join(dict.fromkeys(str(part["image"]) for part in _containers(job) if part.get("image")))


def _resources(job: Object) -> str:
    container = next(iter(_containers(job)), {})
    resources: Object = container.get("resources") or container.get("resourcesPerNode") or {}
    amounts: dict[str, Any] = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items())


def _environment(job: Object) -> str:
    container = next(iter(_containers(job)), {})
    return ", ".join(str(variable["name"]) for variable in container.get("env") or ())


def _queue(job: Object) -> str:
    priority = (job["metadata"].get("labels") or {}).get(PRIORITY, "")
    queue = queue_name(job)
    return f"{queue}, priority {priority}" if queue and priority else queue


def _suspension(job: Object) -> str:
    spec = job.get("spec") or {}
    is_suspended = spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend")
    return "until it is resumed" if is_suspended or run_state(job).state == "Suspended" else ""


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_PROGRAM else f"{line[:_MAX_PROGRAM]}…"


_ROWS: dict[str, Callable[[Object], str]] = {
    "pods": _pods,
    "program": _program,
    "image": _images,
    "resources of a pod": _resources,
    "environment": _environment,
    "queue": _queue,
    "suspended": _suspension,
}
