"""What a cluster must provide before the operator acts, with messages for its administrator.

Nothing is changed here. The operator repeats the checks instead of exiting, because its pod would only be restarted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import LEASES, PODS
from torchyard.api.jobset import names as jobset_names
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.trainjob import names as trainjobs
from torchyard.kube.client import Client
from torchyard.kube.informer import key_of
from torchyard.operator.certificates import VALIDATING
from torchyard.operator.permissions import UPSTREAM_JOBSET_WEBHOOKS, UPSTREAM_TRAINER_WEBHOOKS, Permission

# The label of upstream's operator pods, in every version.
UPSTREAM = "control-plane=kubeflow-training-operator"
_JOBSETS = GroupVersionResource(jobset_names.GROUP, jobset_names.VERSION, jobset_names.PLURAL)
# TrainJobs run as JobSets.
NO_JOBSETS = "TrainJobs need JobSets, which this cluster does not serve and --no-jobsets leaves out"
NO_JOBSETS_HINT = "install upstream's JobSet manager, leave out --no-jobsets, or add --no-trainjobs"


class ClusterNotReady(YardError):
    """The cluster lacks something that may still be installed."""

    code = "NotReady"
    temporary = True


class MissingPermissions(ClusterNotReady):
    """The operator's roles are incomplete, as those of an installation of an earlier version."""

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(
            f"the operator's service account lacks permissions: {'; '.join(missing)}",
            hint="`yard install` of this version creates or updates its roles",
        )


async def check_crd(client: Client) -> None:
    """PyTorchJobs must be served, with a status subresource."""
    jobs = GroupVersionResource(names.GROUP, names.VERSION, names.PLURAL)
    await check_served(client, jobs, "status", hint="yard install --crds-only")


async def check_jobset_crd(client: Client) -> None:
    await check_served(client, _JOBSETS, "status", hint="yard install --crds-only, or yard operator --no-jobsets")


async def has_upstream_jobset(client: Client) -> bool:
    """Whether upstream's JobSet manager is installed on this cluster."""
    return await client.find(VALIDATING, UPSTREAM_JOBSET_WEBHOOKS) is not None


async def check_no_other_jobset_manager(client: Client) -> None:
    if await has_upstream_jobset(client):
        raise ClusterNotReady(
            "upstream's JobSet manager is installed on this cluster: two managers would undo each other's changes",
            hint="uninstall it, or start the operator with --no-jobsets",
        )


async def check_trainjob_crds(client: Client, *, jobsets: bool) -> None:
    """TrainJobs and both kinds of runtimes must be served, and JobSets, whoever manages them."""
    hint = "yard install --crds-only, or yard operator --no-trainjobs"
    plurals = {trainjobs.PLURAL: ("status",), trainjobs.RUNTIME_PLURAL: (), trainjobs.CLUSTER_RUNTIME_PLURAL: ()}
    for plural, subresources in plurals.items():
        await check_served(
            client, GroupVersionResource(trainjobs.GROUP, trainjobs.VERSION, plural), *subresources, hint=hint
        )
    if not jobsets and not await serves_jobsets(client):
        raise ClusterNotReady(NO_JOBSETS, hint=NO_JOBSETS_HINT)


async def serves_jobsets(client: Client) -> bool:
    return not await _missing(client, _JOBSETS, "status")


async def has_upstream_trainer(client: Client) -> bool:
    """Whether upstream's Trainer is installed on this cluster."""
    return await client.find(VALIDATING, UPSTREAM_TRAINER_WEBHOOKS) is not None


async def check_no_other_trainer(client: Client) -> None:
    if await has_upstream_trainer(client):
        raise ClusterNotReady(
            "Kubeflow Trainer is installed on this cluster: two controllers would undo each other's changes",
            hint="uninstall it, or start the operator with --no-trainjobs",
        )


async def check_served(client: Client, ref: GroupVersionResource, *subresources: str, hint: str) -> None:
    missing = await _missing(client, ref, *subresources)
    if missing:
        listed = ", ".join(sorted(missing))
        raise ClusterNotReady(f"the cluster does not serve {listed} of {ref.api_version}", hint=hint)


async def _missing(client: Client, ref: GroupVersionResource, *subresources: str) -> set[str]:
    try:
        served = await client.raw("GET", f"/apis/{ref.api_version}")
    except StatusError as error:
        if error.status != 404:
            raise
        served = {}
    available = {resource["name"] for resource in served.get("resources") or ()}
    return {ref.plural, *(f"{ref.plural}/{resource}" for resource in subresources)} - available


async def check_permissions(client: Client, rights: Iterable[Permission], namespaces: Iterable[str] = ("",)) -> None:
    """Check every permission: a denied request in the middle of a job would be too late."""
    missing = []
    for namespace in namespaces:
        for permission in rights:
            for verb in permission.verbs:
                if not await is_allowed(client, permission, verb, namespace):
                    resource = f"{permission.resource}.{permission.group}" if permission.group else permission.resource
                    missing.append(f"{verb} {resource}" + (f" in {namespace}" if namespace else ""))
    if missing:
        raise MissingPermissions(missing)


async def check_own_namespace(client: Client, namespace: str, lease: str) -> None:
    """The lease and the webhook's certificates need the operator's namespace.

    Creating the lease as a dry run finds out, since the operator may not read namespaces.
    """
    obj = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": {"name": lease}}
    try:
        await client.raw("POST", f"{LEASES.path(namespace)}?dryRun=All", obj)
    except StatusError as error:
        if error.status == 404:
            raise ClusterNotReady(
                f"the operator's namespace {namespace} does not exist",
                hint=f"`yard install` creates it, and so does `kubectl create namespace {namespace}`",
            ) from None
        if error.status != 409:  # 409: the lease exists already
            raise


async def check_no_other_operator(client: Client, namespaces: Iterable[str] = ("",)) -> None:
    """Two operators would create and delete each other's pods."""
    for namespace in namespaces:
        pods = (await client.list(PODS, namespace, labels=UPSTREAM)).items
        running = [pod for pod in pods if (pod.get("status") or {}).get("phase") in ("Pending", "Running")]
        if running:
            pod = "/".join(key_of(running[0]))
            raise ClusterNotReady(
                f"another training operator manages PyTorchJobs on this cluster: pod {pod}",
                hint="scale it down, or use --beside-upstream and separate the two with --namespace or --selector",
            )


async def is_allowed(client: Client, permission: Permission, verb: str, namespace: str) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    attributes: Object = {"group": permission.group, "resource": resource, "verb": verb, "namespace": namespace}
    if subresource:
        attributes["subresource"] = subresource
    if permission.names:
        attributes["name"] = permission.names[0]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.raw("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool((answer.get("status") or {}).get("allowed"))
