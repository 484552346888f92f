"""Gang scheduling of a TrainJob: PodGroups of scheduler-plugins and of Volcano, which count all pods of the JobSet."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.trainjob import names
from torchyard.core.training.pod_groups import (
    POD_GROUP_LABEL,
    SCHEDULER_PLUGINS_API,
    VOLCANO_API,
    VOLCANO_GROUP,
    total_requests,
)

_VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
COSCHEDULING, VOLCANO = "coscheduling", "volcano"


def pod_metadata(policy: Object, job: str) -> Object:
    """Labels and annotations by which pods belong to the group."""
    metadata: Object = {}
    if COSCHEDULING in policy:
        metadata["labels"] = {POD_GROUP_LABEL: job}
    if VOLCANO in policy:
        metadata["annotations"] = {VOLCANO_GROUP: job}
    return metadata


def pod_groups(job: Object, runtime: Object, jobset: Object) -> list[Object]:
    policy = runtime["spec"].get("podGroupPolicy") or {}
    jobs = jobset["spec"]["replicatedJobs"]
    pods = [
        (
            each["template"]["spec"]["template"]["spec"],
            each["template"]["spec"]["parallelism"] * each.get("replicas", 1),
        )
        for each in jobs
    ]
    common: Object = {"minMember": sum(count for _, count in pods), "minResources": total_requests(pods)}
    groups = []
    if COSCHEDULING in policy:
        seconds = (policy[COSCHEDULING] or {}).get("scheduleTimeoutSeconds", 60)
        groups.append(_group(job, SCHEDULER_PLUGINS_API, {**common, "scheduleTimeoutSeconds": seconds}))
    if VOLCANO in policy:
        groups.append(_group(job, VOLCANO_API, {**common, **_volcano(policy[VOLCANO] or {}, runtime, jobset, pods)}))
    return groups


def _volcano(policy: Object, runtime: Object, jobset: Object, pods: list[tuple[Object, int]]) -> Object:
    spec: Object = {}
    template = (runtime["spec"].get("template") or {}).get("metadata") or {}
    queue = (template.get("annotations") or {}).get(_VOLCANO_QUEUE)
    if queue:
        spec["queue"] = queue
    if policy.get("networkTopology"):
        spec["networkTopology"] = policy["networkTopology"]
    classes = [pod["priorityClassName"] for pod, _ in pods if pod.get("priorityClassName")]
    if classes:
        spec["priorityClassName"] = classes[0]
    return spec


def _group(job: Object, api_version: str, spec: Object) -> Object:
    metadata = {
        "name": job["metadata"]["name"],
        "namespace": job["metadata"]["namespace"],
        "ownerReferences": [names.owner_reference(job)],
    }
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}
