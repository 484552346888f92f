"""Defaults of JobSets that depend on more than the schema. Upstream's webhook sets them when a JobSet is created.

They are set before the schema is checked. A null counts as absent, and a value of another type stays: the schema
rejects it with a message that names the field.
"""

from __future__ import annotations

import copy
from typing import Any

from torchyard.api.jobset import names
from torchyard.api.objects import Object

_SPEC_DEFAULTS: Object = {
    "successPolicy": {"operator": names.ALL},
    "startupPolicy": {"startupPolicyOrder": names.ANY_ORDER},
    "network": {},
}


def set_defaults(jobset: Object) -> None:
    """Set every default in place. The JobSet's name may still be generated, so nothing is derived from it."""
    spec = _object(jobset, "spec")
    if spec is None:
        return
    for key, value in _SPEC_DEFAULTS.items():
        _default(spec, key, copy.deepcopy(value))
    for _, replicated_job in _objects(spec, "replicatedJobs"):
        _set_job_defaults(replicated_job)
    network = _object(spec, "network")
    if network is not None:
        _default(network, "enableDNSHostnames", True)
        _default(network, "publishNotReadyAddresses", True)
    policy = spec.get("failurePolicy")
    for index, rule in _objects(policy, "rules") if isinstance(policy, dict) else ():
        if rule.get("name") in (None, ""):
            rule["name"] = f"failurePolicyRule{index}"
    for _, claim_policy in _objects(spec, "volumeClaimPolicies"):
        _default(claim_policy, "retentionPolicy", {"whenDeleted": names.DELETE})


def with_defaults(jobset: Object) -> Object:
    """The JobSet itself if it has its defaults, as it has where the webhook runs; else a copy with them."""
    spec = jobset.get("spec") or {}
    if all(spec.get(key) is not None for key in _SPEC_DEFAULTS):
        return jobset
    jobset = {**jobset, "spec": copy.deepcopy(spec)}
    set_defaults(jobset)
    return jobset


def _set_job_defaults(replicated_job: Object) -> None:
    template = _object(replicated_job, "template")
    job = None if template is None else _object(template, "spec")
    if job is None:
        return
    _default(job, "completionMode", "Indexed")
    pod_template = _object(job, "template")
    pod = None if pod_template is None else _object(pod_template, "spec")
    if pod is not None and pod.get("restartPolicy") in (None, ""):
        pod["restartPolicy"] = "OnFailure"


def _default(obj: Object, key: str, value: Any) -> None:
    if obj.get(key) is None:
        obj[key] = value


def _object(parent: Object, key: str) -> Object | None:
    """The object of this field, which is added if it is absent; None for a value of another type."""
    _default(parent, key, {})
    value = parent[key]
    return value if isinstance(value, dict) else None


def _objects(parent: Object, key: str) -> list[tuple[int, Object]]:
    """The objects of a list with their indexes."""
    values = parent.get(key)
    if not isinstance(values, list):
        return []
    return [(index, value) for index, value in enumerate(values) if isinstance(value, dict)]
