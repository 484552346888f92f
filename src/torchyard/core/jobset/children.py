"""The objects of a JobSet: child Jobs, the headless service and the volume claims."""

from __future__ import annotations

import copy

from torchyard.api.jobset import names
from torchyard.api.jobset.volume_claims import mounts_volume
from torchyard.api.metadata import controller_reference
from torchyard.api.objects import Object
from torchyard.core.jobset.identity import identity, placement


def make_job(jobset: Object, replicated_job: Object, index: int) -> Object:
    metadata, spec = jobset["metadata"], jobset["spec"]
    template = copy.deepcopy(replicated_job.get("template") or {})
    job_spec = template.get("spec") or {}
    pod_template = job_spec.setdefault("template", {})
    labels, annotations = identity(jobset, replicated_job, index), placement(jobset, replicated_job)
    name = names.job_name(metadata["name"], replicated_job["name"], index)
    for holder in (template, pod_template):
        own = holder.get("metadata") or {}
        holder["metadata"] = {
            **own,
            "labels": {**(own.get("labels") or {}), **labels},
            "annotations": {**(own.get("annotations") or {}), **labels, **annotations},
        }
    pod = pod_template.setdefault("spec", {})
    if has_host_names(spec):
        pod["subdomain"] = names.subdomain(jobset)
    job_annotations = template["metadata"]["annotations"]
    if names.EXCLUSIVE_TOPOLOGY in job_annotations and names.NODE_SELECTOR_STRATEGY in job_annotations:
        _select_labelled_nodes(pod, metadata["namespace"], name)
    _add_claims(pod, jobset)
    job_spec["suspend"] = bool(spec.get("suspend"))
    own = template["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": own["labels"],
            "annotations": own["annotations"],
            "ownerReferences": [owner_reference(jobset)],
        },
        "spec": job_spec,
    }


def has_host_names(spec: Object) -> bool:
    return bool((spec.get("network") or {}).get("enableDNSHostnames"))


def make_service(jobset: Object) -> Object:
    """The headless service through which the host names of pods resolve."""
    published = (jobset["spec"].get("network") or {}).get("publishNotReadyAddresses", True)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.subdomain(jobset),
            "namespace": jobset["metadata"]["namespace"],
            "ownerReferences": [owner_reference(jobset)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {names.JOBSET_NAME: jobset["metadata"]["name"]},
            "publishNotReadyAddresses": published,
        },
    }


def claim_names(jobset: Object) -> list[str]:
    return [claim["metadata"]["name"] for claim in make_claims(jobset)]


def make_claims(jobset: Object) -> list[Object]:
    """The claims of spec.volumeClaimPolicies; those to retain have no owner."""
    claims = []
    for policy in jobset["spec"].get("volumeClaimPolicies") or ():
        is_deleted = (policy.get("retentionPolicy") or {}).get("whenDeleted") == names.DELETE
        for template in policy.get("templates") or ():
            own = template.get("metadata") or {}
            metadata: Object = {
                "name": names.claim_name(jobset["metadata"]["name"], own.get("name", "")),
                "namespace": jobset["metadata"]["namespace"],
                "labels": {**(own.get("labels") or {}), names.JOBSET_NAME: jobset["metadata"]["name"]},
            }
            if own.get("annotations"):
                metadata["annotations"] = own["annotations"]
            if is_deleted:
                metadata["ownerReferences"] = [owner_reference(jobset)]
            spec = template.get("spec") or {}
            claims.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return claims


def owner_reference(jobset: Object) -> Object:
    return controller_reference(jobset, names.API_VERSION, names.KIND)


def _select_labelled_nodes(pod: Object, namespace: str, job: str) -> None:
    """Exclusive placement on nodes that an administrator labelled and tainted for this Job."""
    pod["nodeSelector"] = {**(pod.get("nodeSelector") or {}), names.NAMESPACED_JOB: f"{namespace}_{job}"}
    toleration = {"key": names.NO_SCHEDULE_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    pod["tolerations"] = [*(pod.get("tolerations") or ()), toleration]


def _add_claims(pod: Object, jobset: Object) -> None:
    for policy in jobset["spec"].get("volumeClaimPolicies") or ():
        for template in policy.get("templates") or ():
            name = (template.get("metadata") or {}).get("name", "")
            if mounts_volume(pod, name):
                claim = {"claimName": names.claim_name(jobset["metadata"]["name"], name)}
                volume = {"name": name, "persistentVolumeClaim": claim}
                pod["volumes"] = [*(pod.get("volumes") or ()), volume]
