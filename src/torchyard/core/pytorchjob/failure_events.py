"""Events about what goes wrong in a job's pods: exits, image pulls, scheduling, and the number of workers."""

from __future__ import annotations

from collections.abc import Iterator

from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import container_restarts, container_statuses, phase
from torchyard.api.pytorchjob import messages, names
from torchyard.core.events import Event
from torchyard.core.pytorchjob.view import PyTorchJobView, exit_code


def events(view: PyTorchJobView) -> list[Event]:
    result = _out_of_range(view)
    for pod in view.pods.values():
        metadata = pod["metadata"]
        code = exit_code(pod)
        if code is not None:
            once = (metadata["uid"], str(container_restarts(pod)), messages.EXITED)
            result.append(
                Event("Normal", messages.EXITED, messages.exited(view.namespace, metadata["name"], code), once)
            )
        if phase(pod) not in ("Succeeded", "Failed") and not is_terminating(pod):
            result += [
                Event("Warning", reason, message, (metadata["uid"], reason, message))
                for reason, message in _pending_reasons(pod)
            ]
    return result


def _out_of_range(view: PyTorchJobView) -> list[Event]:
    """Upstream accepts any number of workers, `kubectl scale` included, and leaves it to the rendezvous, as here."""
    policy = view.elastic
    workers = int((view.replicas.get(names.WORKER) or {}).get("replicas") or 0)
    if policy is None or policy["minReplicas"] <= workers <= policy["maxReplicas"]:
        return []
    message = messages.out_of_range(workers, policy["minReplicas"], policy["maxReplicas"])
    return [
        Event("Warning", messages.OUT_OF_RANGE, message, (view.job["metadata"]["uid"], messages.OUT_OF_RANGE, message))
    ]


def _pending_reasons(pod: Object) -> Iterator[tuple[str, str]]:
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    containers = container_statuses(pod)
    for container in containers:
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended and ended.get("exitCode"):
            message = messages.container_ended(name, container["name"], ended["exitCode"], ended.get("message", ""))
            yield ended.get("reason") or "Error", message
        elif waiting and waiting.get("message"):
            yield (
                waiting.get("reason") or "Waiting",
                messages.container_waits(name, container["name"], waiting["message"]),
            )
    if not containers:
        conditions = sorted(
            status.get("conditions") or (), key=lambda condition: condition.get("lastTransitionTime") or ""
        )
        newest = conditions[-1] if conditions else None
        if newest and newest["status"] != "True" and newest.get("reason"):
            yield newest["reason"], messages.pod_hindered(name, newest.get("message", ""))
