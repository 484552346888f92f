"""Defaults of JobSets that depend on more than the schema. Upstream's webhook sets them when a JobSet is created."""

from __future__ import annotations

import copy

from torchyard.api.jobset import names
from torchyard.api.objects import Object


def set_defaults(jobset: Object) -> None:
    """Set every default in place. The JobSet's name may still be generated, so nothing is derived from it."""
    spec = jobset.setdefault("spec", {})
    spec.setdefault("successPolicy", {"operator": names.ALL})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": names.ANY_ORDER})
    for replicated_job in spec.get("replicatedJobs") or ():
        _set_job_defaults(replicated_job)
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for index, rule in enumerate((spec.get("failurePolicy") or {}).get("rules") or ()):
        if not rule.get("name"):
            rule["name"] = f"failurePolicyRule{index}"
    for policy in spec.get("volumeClaimPolicies") or ():
        policy.setdefault("retentionPolicy", {"whenDeleted": names.DELETE})


def with_defaults(jobset: Object) -> Object:
    """The JobSet itself if it has its defaults, as it has where the webhook runs; else a copy with them."""
    spec = jobset.get("spec") or {}
    if {"successPolicy", "startupPolicy", "network"} <= spec.keys():
        return jobset
    jobset = {**jobset, "spec": copy.deepcopy(spec)}
    set_defaults(jobset)
    return jobset


def _set_job_defaults(replicated_job: Object) -> None:
    job = replicated_job.setdefault("template", {}).setdefault("spec", {})
    job.setdefault("completionMode", "Indexed")
    pod = job.setdefault("template", {}).setdefault("spec", {})
    if not pod.get("restartPolicy"):
        pod["restartPolicy"] = "OnFailure"
