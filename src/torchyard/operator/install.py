"""Installation on a cluster: server-side apply of the manifests, in order, as often as one likes; and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torchyard.api.conditions import holds
from torchyard.api.errors import StatusError, YardError
from torchyard.kube.client import Client, Ref
from torchyard.kube.refs import CLUSTER_ROLES, NAMESPACES, SERVICE_ACCOUNTS, SERVICES
from torchyard.operator.certificates import MUTATING, VALIDATING
from torchyard.operator.manifests import Installation, definitions, objects
from torchyard.operator.settings import NAME

Object = dict[str, Any]
Say = Callable[[str], None]
DEFINITIONS = Ref("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
# Where objects of these kinds are found; a cluster's discovery would say the same.
_REFS = {
    "CustomResourceDefinition": DEFINITIONS,
    "Namespace": NAMESPACES,
    "ServiceAccount": SERVICE_ACCOUNTS,
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": Ref("rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False),
    "Role": Ref("rbac.authorization.k8s.io", "v1", "roles"),
    "RoleBinding": Ref("rbac.authorization.k8s.io", "v1", "rolebindings"),
    "Deployment": Ref("apps", "v1", "deployments"),
    "Service": SERVICES,
    "PodDisruptionBudget": Ref("policy", "v1", "poddisruptionbudgets"),
    "NetworkPolicy": Ref("networking.k8s.io", "v1", "networkpolicies"),
    "ValidatingWebhookConfiguration": VALIDATING,
    "MutatingWebhookConfiguration": MUTATING,
}
_ESTABLISHED_SECONDS = 30.0


async def install(client: Client, to: Installation | None, say: Say) -> None:
    """Definitions first; None for `to` means definitions only."""
    for obj in definitions():
        await _apply(client, obj, say)
        await _wait_established(client, obj, say)
    for obj in objects(to) if to is not None else ():
        await _apply(client, obj, say)


async def uninstall(client: Client, to: Installation, say: Say, *, with_definitions: bool = False) -> None:
    """The operator goes, its namespace and its roles with it. Definitions, and so all jobs, only if asked."""
    # The webhook first: with its operator gone it would refuse every job.
    for obj in reversed(objects(replace(to, queues=True))):
        await _delete(client, obj, say)
    for kind in ("RoleBinding", "Role"):  # of the namespaces it looked after, if those were named
        for obj in (await client.list(_REFS[kind], labels=f"app.kubernetes.io/name={NAME}")).items:
            await _delete(client, {**obj, "kind": kind}, say)
    for obj in definitions() if with_definitions else ():
        await _delete(client, obj, say)


async def _apply(client: Client, obj: Object, say: Say) -> None:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    ref = _REFS[obj["kind"]]
    before = await client.find(ref, metadata["name"], namespace)
    after = await client.patch(ref, metadata["name"], obj, namespace, kind="apply", force=True)
    said = "created" if before is None else "unchanged" if _revision(before) == _revision(after) else "configured"
    say(f"{_shown(obj)} {said}")


async def _delete(client: Client, obj: Object, say: Say) -> None:
    metadata = obj["metadata"]
    try:
        await client.delete(_REFS[obj["kind"]], metadata["name"], metadata.get("namespace", ""))
    except StatusError as error:
        if error.status != 404:
            raise
        return
    say(f"{_shown(obj)} deleted")


async def _wait_established(client: Client, definition: Object, say: Say) -> None:
    """Until it is served. One that was still going from before is made again when it is gone."""
    name = definition["metadata"]["name"]
    found: Object | None = None
    try:
        async with asyncio.timeout(_ESTABLISHED_SECONDS):
            while True:
                found = await client.find(DEFINITIONS, name)
                if found is None:
                    await _apply(client, definition, say)
                    continue
                if not found["metadata"].get("deletionTimestamp") and holds(found, "Established"):
                    return
                await asyncio.sleep(0.1)
    except TimeoutError:
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        said = "; ".join(f"{one['type']}={one['status']}: {one.get('message', '')}" for one in conditions)
        raise YardError(f"the definition {name} is not served: {said or 'the server says nothing'}") from None


def _revision(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


def _shown(obj: Object) -> str:
    return f"{obj['kind'].lower()}/{obj['metadata']['name']}"
