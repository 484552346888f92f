"""Installation on a cluster: server-side apply of the manifests in order, repeatable; and removal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import CLUSTER_ROLES, LEASES, NAMESPACES, SECRETS, SERVICE_ACCOUNTS, SERVICES
from torchyard.api.objects import Object
from torchyard.api.trainjob.runtimes import SYSTEM_NAMESPACE
from torchyard.controllers.jobset import JOBSETS
from torchyard.controllers.pytorchjob import JOBS
from torchyard.controllers.trainjob import TRAINJOBS
from torchyard.kube.client import Client
from torchyard.operator.certificates import MUTATING, VALIDATING
from torchyard.operator.checks import (
    NO_JOBSETS,
    NO_JOBSETS_HINT,
    has_upstream_jobset,
    has_upstream_trainer,
    serves_jobsets,
)
from torchyard.operator.manifests import (
    NAME_LABEL,
    Installation,
    definitions,
    jobset_objects,
    objects,
    queue_objects,
    sdk_objects,
    trainjob_objects,
)
from torchyard.operator.monitoring import GROUP as MONITORING_GROUP
from torchyard.operator.monitoring import VERSION as MONITORING_VERSION
from torchyard.operator.monitoring import monitoring_objects
from torchyard.operator.settings import LEASE, NAME, WEBHOOK_SECRET

Say = Callable[[str], None]
DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
# The resources of these kinds; a cluster's discovery would return the same.
_REFS = {
    "CustomResourceDefinition": DEFINITIONS,
    "Namespace": NAMESPACES,
    "ServiceAccount": SERVICE_ACCOUNTS,
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": GroupVersionResource(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False
    ),
    "Role": GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles"),
    "RoleBinding": GroupVersionResource("rbac.authorization.k8s.io", "v1", "rolebindings"),
    "Deployment": GroupVersionResource("apps", "v1", "deployments"),
    "Service": SERVICES,
    "PodDisruptionBudget": GroupVersionResource("policy", "v1", "poddisruptionbudgets"),
    "NetworkPolicy": GroupVersionResource("networking.k8s.io", "v1", "networkpolicies"),
    "ValidatingWebhookConfiguration": VALIDATING,
    "MutatingWebhookConfiguration": MUTATING,
    "ConfigMap": GroupVersionResource("", "v1", "configmaps"),
    "ServiceMonitor": GroupVersionResource(MONITORING_GROUP, MONITORING_VERSION, "servicemonitors"),
    "PodMonitor": GroupVersionResource(MONITORING_GROUP, MONITORING_VERSION, "podmonitors"),
    "PrometheusRule": GroupVersionResource(MONITORING_GROUP, MONITORING_VERSION, "prometheusrules"),
    "Secret": SECRETS,
    "Lease": LEASES,
}
_ESTABLISHED_SECONDS = 90.0


async def install(client: Client, to: Installation | None, say: Say) -> None:
    """Apply the definitions first; `to` None means only these.

    Objects of an earlier installation that are no longer needed are deleted.
    """
    jobsets = to.jobsets if to is not None else not await has_upstream_jobset(client)
    trainjobs = to.trainjobs if to is not None else not await has_upstream_trainer(client)
    for obj in definitions(jobsets=jobsets, trainjobs=trainjobs):
        definition = _without_labels(obj) if await _is_foreign(client, obj) else obj
        await _apply(client, definition, say)
        await _wait_established(client, obj, say)
    if to is None:
        return
    desired = [*objects(to), *sdk_objects(to)]
    if to.monitoring:
        await _check_prometheus_operator(client)
        desired += monitoring_objects(to)
    for obj in desired:
        is_shared = obj["kind"] == "Namespace" or obj["metadata"].get("namespace") == SYSTEM_NAMESPACE
        if is_shared and await _is_foreign(client, obj):
            say(f"{_describe(obj)} was not created by yard install, and is left unchanged")
        else:
            await _apply(client, obj, say)
    desired_identities = {_identity(obj) for obj in desired}
    for obj in await _optional(client, to):
        if _identity(obj) not in desired_identities:
            await _delete(client, obj, say)


async def _check_prometheus_operator(client: Client) -> None:
    if not await _serves(client, f"/apis/{MONITORING_GROUP}/{MONITORING_VERSION}"):
        raise YardError(
            f"this cluster does not serve {MONITORING_GROUP}/{MONITORING_VERSION}, which --monitoring needs",
            hint="install the Prometheus Operator first, for example with the chart kube-prometheus-stack",
            code="UnknownKind",
        )


async def _serves(client: Client, path: str) -> bool:
    """Whether the cluster serves a group-version."""
    try:
        await client.raw("GET", path)
    except StatusError as error:
        if error.status != 404:
            raise
        return False
    return True


async def includes_trainjobs(client: Client, requested: bool | None, say: Say, *, jobsets: bool) -> bool:
    """Whether to install TrainJobs; by default unless upstream's Trainer is installed, or JobSets would be missing."""
    included = not await has_upstream_trainer(client) if requested is None else requested
    if not included or jobsets or await serves_jobsets(client):
        return included
    if requested:
        raise YardError(NO_JOBSETS, hint=NO_JOBSETS_HINT, code="UnknownKind")
    say("TrainJobs are left out: they need JobSets, which this cluster does not serve")
    return False


async def uninstall(client: Client, to: Installation, say: Say, *, with_definitions: bool = False) -> None:
    """Delete the operator and its roles. The definitions that it created, and with them all jobs, only on request.

    The namespace is deleted too, unless another party created it or jobs in it are to be kept. Kubeflow's is kept.
    """
    (namespace,) = (obj for obj in objects(to) if obj["kind"] == "Namespace")
    obsolete = [*reversed(objects(to)), *await _optional(client, to), *_created_by_operator(to)]
    # Webhooks first: without the operator they would reject every job.
    for obj in sorted(obsolete, key=lambda obj: not obj["kind"].endswith("WebhookConfiguration")):
        if obj["kind"] != "Namespace":
            await _delete(client, obj, say)
    jobsets = not await has_upstream_jobset(client)  # else the definition serves upstream's JobSets
    trainjobs = not await has_upstream_trainer(client)
    for obj in definitions(jobsets=jobsets, trainjobs=trainjobs) if with_definitions else ():
        if await _is_foreign(client, obj):
            say(f"{_describe(obj)} was not created by yard install, and is kept with its objects")
        else:
            await _delete(client, obj, say)
    if await _is_foreign(client, namespace):
        say(f"{_describe(namespace)} was not created by yard install, and is kept")
    elif not with_definitions and await _has_jobs(client, to.namespace):
        say(f"{_describe(namespace)} is kept, because it contains jobs")
    else:
        await _delete(client, namespace, say)


async def _optional(client: Client, to: Installation) -> list[Object]:
    """What only some installations have: roles in watched namespaces, JobSets, and the integration with Kueue."""
    optional = [
        *queue_objects(to),
        *jobset_objects(replace(to, jobsets=True)),
        *trainjob_objects(replace(to, trainjobs=True)),
        *monitoring_objects(to),
    ]
    for obj in sdk_objects(replace(to, trainjobs=True)):
        if obj["kind"] == "ConfigMap" and not await _is_foreign(client, obj):  # upstream's Trainer has one of this name
            optional.append(obj)
    for kind in ("RoleBinding", "Role"):
        listed = (await client.list(_REFS[kind], labels=f"{NAME_LABEL}={NAME}")).items
        optional += [{"kind": kind, "metadata": role["metadata"]} for role in listed]
    return optional


def _created_by_operator(to: Installation) -> list[Object]:
    """The objects that the operator itself has created in its namespace."""
    return [
        {"kind": kind, "metadata": {"name": name, "namespace": to.namespace}}
        for kind, name in (("Secret", WEBHOOK_SECRET), ("Lease", LEASE))
    ]


async def _is_foreign(client: Client, obj: Object) -> bool:
    """Whether the object exists and was not created by an installation."""
    metadata = obj["metadata"]
    existing = await client.find(_REFS[obj["kind"]], metadata["name"], metadata.get("namespace", ""))
    return existing is not None and (existing["metadata"].get("labels") or {}).get(NAME_LABEL) != NAME


async def _has_jobs(client: Client, namespace: str) -> bool:
    for ref in (JOBS, JOBSETS, TRAINJOBS):
        try:
            if (await client.list(ref, namespace)).items:
                return True
        except StatusError as error:
            if error.status != 404:  # the kind is no longer served
                raise
    return False


def _without_labels(definition: Object) -> Object:
    """A definition that others created is updated, but stays theirs: deleting it would delete their objects."""
    metadata = {key: value for key, value in definition["metadata"].items() if key != "labels"}
    return {**definition, "metadata": metadata}


def _identity(obj: Object) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


async def _apply(client: Client, obj: Object, say: Say) -> None:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    ref = _REFS[obj["kind"]]
    before = await client.find(ref, metadata["name"], namespace)
    after = await client.patch(ref, metadata["name"], obj, namespace, kind="apply", force=True)
    result = "created" if before is None else "unchanged" if _revision(before) == _revision(after) else "configured"
    say(f"{_describe(obj)} {result}")


async def _delete(client: Client, obj: Object, say: Say) -> None:
    metadata = obj["metadata"]
    try:
        await client.delete(_REFS[obj["kind"]], metadata["name"], metadata.get("namespace", ""))
    except StatusError as error:
        if error.status != 404:
            raise
        return
    say(f"{_describe(obj)} deleted")


async def _wait_established(client: Client, definition: Object, say: Say) -> None:
    """Wait until it is served. A definition that is still being deleted is created again afterwards."""
    name = definition["metadata"]["name"]
    current: Object | None = None
    try:
        async with asyncio.timeout(_ESTABLISHED_SECONDS):
            while True:
                current = await client.find(DEFINITIONS, name)
                if current is None:
                    await _apply(client, definition, say)
                    continue
                if not current["metadata"].get("deletionTimestamp") and has_true_condition(current, "Established"):
                    return
                await asyncio.sleep(0.1)
    except TimeoutError:
        conditions = ((current or {}).get("status") or {}).get("conditions") or ()
        condition_text = "; ".join(
            f"{condition['type']}={condition['status']}: {condition.get('message', '')}" for condition in conditions
        )
        raise YardError(
            f"the definition {name} is not served: {condition_text or 'it has no conditions'}", code="UnknownKind"
        ) from None


def _revision(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


def _describe(obj: Object) -> str:
    return f"{obj['kind'].lower()}/{obj['metadata']['name']}"
