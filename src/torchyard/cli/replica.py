"""The replica of a job that a command acts on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.api.errors import YardError
from torchyard.core.run.ranks import choose_replicas
from torchyard.core.run.state import default_container
from torchyard.kube.container_streams import ContainerAddress
from torchyard.kube.job_lookup import pods_of_job

if TYPE_CHECKING:
    from torchyard.cli.target import Cluster
    from torchyard.kube.client import Client


async def find_container(client: Client, job: str, cluster: Cluster, rank: str, container: str) -> ContainerAddress:
    """The container of a running replica. Raises YardError if the job has none."""
    chosen = await cluster.find_job(client, job)
    pods = await pods_of_job(client, chosen)
    if not pods:
        raise YardError(
            f"{chosen.qualified_name} has no pods", hint=f"`yard why {chosen.name}` says why", code="NoPods"
        )
    pod = choose_replicas(pods, chosen.name, (rank,) if rank else ())[0]
    name, phase = str(pod["metadata"]["name"]), (pod.get("status") or {}).get("phase")
    if phase != "Running":
        raise YardError(
            f"{name} is {phase or 'Pending'}, not Running", hint=f"`yard why {chosen.name}` says why", code="NotRunning"
        )
    names = [str(part["name"]) for part in pod["spec"]["containers"]]
    if container and container not in names:
        raise YardError(
            f"{name} has no container {container}", hint=f"its containers are {', '.join(names)}", code="NotFound"
        )
    return ContainerAddress(chosen.namespace, name, container or default_container(pod))
