"""Objects for the campaign of injected exceptions: applications, JobSets, TrainJobs, certificates and addresses."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.support import storage
from tests.support.certificates import certificate_request
from tests.support.waiting import first_answer

from torchyard.api import progress
from torchyard.api.conditions import has_true_condition
from torchyard.api.gvr import (
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_ROLES,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    JOBS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICE_ACCOUNTS,
    SERVICE_CIDRS,
    SERVICES,
    STATEFUL_SETS,
)
from torchyard.api.objects import Object
from torchyard.controllers.jobset import JOBSETS
from torchyard.controllers.trainjob import RUNTIMES, TRAINJOBS
from torchyard.core.progress.reports import LOG, JobReference, ProgressReport
from torchyard.kube.client import Client
from torchyard.yard.plane import Plane

NAMESPACE = "apps"
_MIRRORED = "kubernetes.io/service-name=outside"


def _labels(name: str) -> Object:
    return {"set": name}


def _servers(name: str, image: str = "i") -> Object:
    """The spec of a set whose pods run until they are deleted."""
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": "10m"}}}
    return {
        "selector": {"matchLabels": _labels(name)},
        "template": {"metadata": {"labels": _labels(name)}, "spec": {"containers": [container]}},
    }


async def create_applications(client: Client, seconds: float) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    await first_answer(lambda: client.find(SERVICE_ACCOUNTS, "default", NAMESPACE), seconds=seconds)
    claim = {"metadata": {"name": "data"}, "spec": storage.claim(cls=None)["spec"]}
    controller = {**_servers("controller"), "selector": _labels("controller"), "replicas": 1}
    for gvr, name, spec in (
        (DEPLOYMENTS, "web", {**_servers("web"), "replicas": 2}),
        (STATEFUL_SETS, "store", {**_servers("store"), "replicas": 2, "volumeClaimTemplates": [claim]}),
        (DAEMON_SETS, "agent", _servers("agent")),
        (REPLICATION_CONTROLLERS, "controller", controller),
        (POD_DISRUPTION_BUDGETS, "web", {"minAvailable": 1, "selector": {"matchLabels": _labels("web")}}),
        (SERVICES, "outside", {"ports": [{"port": 80}]}),
        (JOBSETS, "set", _jobset_spec()),
    ):
        kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"} if gvr is JOBSETS else {}
        await client.create(gvr, {**kind, "metadata": {"name": name}, "spec": spec}, NAMESPACE)
    subsets = [{"addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 80}]}]
    await client.create(ENDPOINTS, {"metadata": {"name": "outside"}, "subsets": subsets}, NAMESPACE)
    runtimes = RUNTIMES["ClusterTrainingRuntime"]
    await first_answer(lambda: client.find(runtimes, "torch-distributed"), "the runtime", seconds=seconds)
    trainer = {"image": "i", "command": ["python", "train.py"], "numNodes": 2}
    training = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    kind = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    await client.create(TRAINJOBS, {**kind, "metadata": {"name": "train"}, "spec": training}, NAMESPACE)
    await _create_cluster_objects(client)


def _jobset_spec() -> Object:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "10m"}}}
    pods = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {"replicatedJobs": [{"name": "work", "replicas": 2, "template": {"spec": {"template": pods}}}]}


async def _create_cluster_objects(client: Client) -> None:
    await client.create(SERVICE_CIDRS, {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.213.0.0/24"]}})
    label = {"sum": "yes"}
    total = {"metadata": {"name": "total"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": label}]}}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    await client.create(CLUSTER_ROLES, {**total, "rules": []})
    await client.create(CLUSTER_ROLES, {"metadata": {"name": "part", "labels": label}, "rules": [rule]})
    spec = {
        "request": certificate_request("jane"),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }
    request = await client.create(CERTIFICATE_SIGNING_REQUESTS, {"metadata": {"name": "jane"}, "spec": spec})
    approved = {"type": "Approved", "status": "True", "reason": "Test", "message": "by a test"}
    status = {"conditions": [approved]}
    await client.update(CERTIFICATE_SIGNING_REQUESTS, {**request, "status": status}, subresource="approval")


def report_progress(plane: Plane) -> None:
    """The last report of a Job, as the node publishes it: no later one repeats what was not written."""
    job = JobReference("Job", "work", "plain")
    plane.registry.progress.publish(
        ProgressReport(job, "plain-0", 0, datetime.now(UTC), LOG, percent=100, metrics={"loss": "0.5"}, is_last=True)
    )


async def change_applications(client: Client) -> None:
    """A rolling update, a smaller set, a JobSet and a range of addresses that go."""
    await client.patch(DEPLOYMENTS, "web", {"spec": _servers("web", image="i:2")}, NAMESPACE)
    await client.patch(STATEFUL_SETS, "store", {"spec": {"replicas": 1}}, NAMESPACE)
    await client.patch(DAEMON_SETS, "agent", {"spec": _servers("agent", image="i:2")}, NAMESPACE)
    await client.delete(JOBSETS, "set", NAMESPACE, propagation="Foreground")
    await client.delete(SERVICE_CIDRS, "more")


async def unsettled_applications(client: Client, *, is_changed: bool) -> list[str]:
    """What is not yet as it has to be, before or after `change_applications`."""
    pods = [pod for pod in (await client.list(PODS, NAMESPACE)).items if "deletionTimestamp" not in pod["metadata"]]
    image = "i:2" if is_changed else "i"
    counts = {name: _running(pods, name) for name in ("web", "store", "agent", "controller")}
    web, store = await client.get(DEPLOYMENTS, "web", NAMESPACE), await client.get(STATEFUL_SETS, "store", NAMESPACE)
    agent = await client.get(DAEMON_SETS, "agent", NAMESPACE)
    budget = await client.get(POD_DISRUPTION_BUDGETS, "web", NAMESPACE)
    training = await client.get(TRAINJOBS, "train", NAMESPACE)
    total = await client.get(CLUSTER_ROLES, "total")
    request = await client.get(CERTIFICATE_SIGNING_REQUESTS, "jane")
    mirrored = [
        address
        for piece in (await client.list(ENDPOINT_SLICES, NAMESPACE, labels=_MIRRORED)).items
        for endpoint in piece["endpoints"] or ()
        for address in endpoint["addresses"]
    ]
    sets = {item["metadata"]["name"]: item["status"] for item in (await client.list(REPLICA_SETS, NAMESPACE)).items}
    busy_sets = [status for status in sets.values() if status.get("replicas")]
    shown = (
        (await client.get(JOBS, "plain", "work"))["metadata"].get("annotations", {}).get(progress.TEXT_ANNOTATION, "")
    )
    checks = {
        f"running pods {counts}": counts == {"web": 2, "store": 1 if is_changed else 2, "agent": 1, "controller": 1},
        f"images {counts}": {_image(pod) for pod in pods if _is_of(pod, "web") or _is_of(pod, "agent")} == {image},
        f"deployment {web['status']}": _is_rolled_out(web, 2) and len(busy_sets) == 1,
        f"stateful set {store['status']}": store["status"].get("readyReplicas") == (1 if is_changed else 2),
        f"daemon set {agent['status']}": agent["status"].get("updatedNumberScheduled") == 1,
        f"disruptions {budget['status']}": budget["status"].get("currentHealthy") == 2,
        f"training {training.get('status')}": has_true_condition(training, "Complete"),
        f"aggregated role {total['rules']}": len(total["rules"] or ()) == 1,
        f"certificate {request['status']}": "certificate" in request["status"],
        f"mirrored addresses {mirrored}": mirrored == ["192.0.2.7"],
        f"progress {shown}": "100" in shown,
    }
    jobset, cidr = await client.find(JOBSETS, "set", NAMESPACE), await client.find(SERVICE_CIDRS, "more")
    if is_changed:
        checks[f"deleted JobSet and range {jobset} {cidr}"] = jobset is None and cidr is None
    else:
        checks[f"JobSet {jobset}"] = jobset is not None and has_true_condition(jobset, "Completed")
        checks[f"range of addresses {cidr}"] = cidr is not None and has_true_condition(cidr, "Ready")
    return [description for description, is_met in checks.items() if not is_met]


def _is_of(pod: Object, name: str) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("set") == name)


def _running(pods: list[Object], name: str) -> int:
    return sum(_is_of(pod, name) and pod["status"].get("phase") == "Running" for pod in pods)


def _image(pod: Object) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def _is_rolled_out(deployment: Object, replicas: int) -> bool:
    status = deployment["status"]
    counts = {status.get(field) for field in ("replicas", "updatedReplicas", "availableReplicas")}
    return bool(status.get("observedGeneration") == deployment["metadata"]["generation"]) and counts == {replicas}
