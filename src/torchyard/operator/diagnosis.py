"""What `yard doctor` reports about a cluster. Nothing is changed, and denied reads are reported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import LEASES, PODS
from torchyard.api.pytorchjob import names
from torchyard.controllers import operator_pod
from torchyard.core.queue.kueue_detection import IntegrationMode
from torchyard.kube.client import Client
from torchyard.operator.certificates import VALIDATING
from torchyard.operator.checks import UPSTREAM, check_crd, is_allowed
from torchyard.operator.manifests import NAME_LABEL
from torchyard.operator.permissions import Permission
from torchyard.operator.queues import inspect_kueue
from torchyard.operator.settings import LEASE, NAME, WEBHOOK

Finding = tuple[str, bool, str]  # check, whether it passed, message
_DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
_GANGS = {"scheduling.volcano.sh": "volcano", "scheduling.x-k8s.io": "scheduler-plugins"}


async def diagnose_cluster(client: Client, namespace: str) -> list[Finding]:
    """One finding for each check. `namespace` is where the user's jobs would go."""
    version = await client.raw("GET", "/version")
    findings: list[Finding] = [("cluster", True, f"Kubernetes {version.get('gitVersion', '?')}")]
    for check, question in (_PLANE_CHECKS if await is_plane(client) else _CLUSTER_CHECKS).items():
        try:
            works, message = await question(client, namespace)
        except StatusError as error:
            works, message = False, f"permission denied: {error}" if error.status == 403 else str(error)
        except YardError as error:
            works, message = False, str(error)
        findings.append((check, works, message))
    return findings


async def is_plane(client: Client) -> bool:
    """Whether this is a plane of `yard up` with its own PyTorchJob controller, as far as the user may read."""
    try:
        pod = await client.find(PODS, operator_pod.NAME, operator_pod.NAMESPACE)
    except StatusError:
        return False
    return pod is not None and pod["spec"]["containers"][0]["image"] == operator_pod.IMAGE


async def _kind(client: Client, _: str) -> tuple[bool, str]:
    await check_crd(client)
    return True, f"{names.PLURAL} of {names.API_VERSION} are served"


async def _user_permissions(client: Client, namespace: str) -> tuple[bool, str]:
    allowed = await is_allowed(client, Permission(names.GROUP, names.PLURAL, ("create",)), "create", namespace)
    return allowed, f"you may{'' if allowed else ' not'} create PyTorchJobs in {namespace}"


async def _operator(client: Client, _: str) -> tuple[bool, str]:
    deployments = (await client.list(_DEPLOYMENTS, labels=f"{NAME_LABEL}={NAME}")).items
    if not deployments:
        return False, "not installed: jobs stay pending; run `yard install`"
    deployment = deployments[0]
    ready = int((deployment.get("status") or {}).get("readyReplicas") or 0)
    copies = (
        f"{ready} of {deployment['spec'].get('replicas', 1)} replicas ready in {deployment['metadata']['namespace']}"
    )
    lease = await client.find(LEASES, LEASE, deployment["metadata"]["namespace"])
    holder = ((lease or {}).get("spec") or {}).get("holderIdentity")
    return ready > 0, f"{copies}; leader: {holder or 'none'}"


async def _plane(_client: Client, _: str) -> tuple[bool, str]:
    return True, "built into this plane, with queues; nothing to install"


async def _webhook(client: Client, _: str) -> tuple[bool, str]:
    webhook = await client.find(VALIDATING, WEBHOOK)
    if webhook is None:
        return False, "not installed: invalid jobs are accepted, and fail later"
    if not all(entry["clientConfig"].get("caBundle") for entry in webhook.get("webhooks") or ()):
        return False, "no operator replica has set its CA yet: every job is rejected until one does"
    return True, "jobs are validated on admission"


async def _other_operators(client: Client, _: str) -> tuple[bool, str]:
    pods = (await client.list(PODS, labels=UPSTREAM)).items
    if not pods:
        return True, "none"
    operators = ", ".join(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods)
    return False, f"{operators}: two operators would undo each other's changes"


async def _gangs(client: Client, _: str) -> tuple[bool, str]:
    served = {group["name"] for group in (await client.raw("GET", "/apis")).get("groups") or ()}
    schedulers = [name for group, name in _GANGS.items() if group in served]
    return True, ", ".join(schedulers) if schedulers else "none; leave --gang-scheduler-name empty"


async def _queues(client: Client, _: str) -> tuple[bool, str]:
    integration = await inspect_kueue(client)
    descriptions = {
        IntegrationMode.NONE: "no Kueue",
        IntegrationMode.BUILT_IN: "Kueue queues PyTorchJobs itself",
        IntegrationMode.EXTERNAL: "the operator queues PyTorchJobs in Kueue",
    }
    return True, f"{descriptions[integration.mode]} ({'; '.join(integration.reasons)})"


_CLUSTER_CHECKS: dict[str, Callable[[Client, str], Awaitable[tuple[bool, str]]]] = {
    "PyTorchJobs": _kind,
    "your permissions": _user_permissions,
    "operator": _operator,
    "admission": _webhook,
    "other operators": _other_operators,
    "gang schedulers": _gangs,
    "queues": _queues,
}
_PLANE_CHECKS = {"PyTorchJobs": _kind, "your permissions": _user_permissions, "operator": _plane}
