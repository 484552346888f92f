"""What the node observes of a pod: the input of the decisions in `core.pod`."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.core.pod.view import ContainerView, PodView, every_container
from torchyard.node.pod.container_starter import ContainerStarter
from torchyard.node.pod.probes import ProbeManager
from torchyard.node.pod.sandbox import PodSandbox


def observe(
    sandbox: PodSandbox,
    starter: ContainerStarter,
    probes: ProbeManager,
    *,
    host_ip: str,
    started: float | None,
    ended: tuple[str, str] | None,
    rejected: bool,
) -> PodView:
    """`started`: when the node admitted the pod; `ended`: reason and message of an end that the node decided on."""
    containers = {
        container["name"]: _container(sandbox, starter, probes, container) for container in every_container(sandbox.pod)
    }
    return PodView(
        containers=containers,
        sandbox=sandbox.ready,
        ip=sandbox.ip,
        host_ip=host_ip,
        started=started,
        ended=ended,
        rejected=rejected,
    )


def _container(
    sandbox: PodSandbox, starter: ContainerStarter, probes: ProbeManager, container: Object
) -> ContainerView:
    name = container["name"]
    attempts = sandbox.dir.attempts(container)
    running = attempts[-1].number if attempts and attempts[-1].running else None
    probe_worker = probes.worker(container, running)
    image = starter.image(name)
    return ContainerView(
        attempts=attempts,
        waiting=starter.waiting(name),
        started=probe_worker.started if probe_worker else True,
        ready=probe_worker.ready if probe_worker else True,
        image=image.name if image else _from_status(sandbox.pod, name, "image"),
        image_id=image.id if image else _from_status(sandbox.pod, name, "imageID"),
    )


def _from_status(pod: Object, name: str, field: str) -> str:
    """A field of a container's status as it was last written, perhaps by an earlier agent."""
    status = pod.get("status") or {}
    for group in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for container in status.get(group) or ():
            if container["name"] == name:
                return str(container.get(field) or "")
    return ""
