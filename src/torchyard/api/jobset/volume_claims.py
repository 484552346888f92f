"""Validation of spec.volumeClaimPolicies: every claim has a name, a mount, and no volume of the same name."""

from __future__ import annotations

from torchyard.api import checks, field_errors
from torchyard.api import names as any_names
from torchyard.api.field_errors import FieldError
from torchyard.api.jobset import names
from torchyard.api.objects import Object

_MAX_CLAIM_NAME = 253


def check_volume_claims(spec: Object, jobset: str, errs: list[FieldError]) -> None:
    taken: set[str] = set()
    for number, policy in enumerate(spec.get("volumeClaimPolicies") or ()):
        for index, template in enumerate(policy.get("templates") or ()):
            name = (template.get("metadata") or {}).get("name", "")
            field = f"spec.volumeClaimPolicies[{number}].template[{index}].name"
            if name in taken:
                detail = "names must be unique for VolumeClaimPolicies template"
                errs.append(field_errors.invalid(field, name, detail))
            checks.report_problems(any_names.subdomain_problems(name), field, name, errs)
            if len(names.claim_name(jobset, name)) > _MAX_CLAIM_NAME:
                errs.append(field_errors.invalid(field, name, "VolumeClaimPolicies template name is too long"))
            _check_mounts(spec.get("replicatedJobs") or [], name, errs)
            taken.add(name)


def _check_mounts(replicated_jobs: list[Object], claim: str, errs: list[FieldError]) -> None:
    has_mount = False
    for number, replicated_job in enumerate(replicated_jobs):
        pod = (((replicated_job.get("template") or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
        for index, volume in enumerate(pod.get("volumes") or ()):
            if volume.get("name") == claim:
                field = f"spec.replicatedJobs[{number}].template.spec.template.spec.volumes[{index}].name"
                detail = f"volume name conflicts with VolumeClaimPolicy template name: {claim}"
                errs.append(field_errors.invalid(field, claim, detail))
        has_mount = has_mount or mounts_volume(pod, claim)
    if not has_mount:
        detail = f"replicatedJob containers don't have a matching volumeMount: {claim} from VolumeClaimPolicies"
        errs.append(field_errors.invalid("spec.replicatedJobs", replicated_jobs, detail))


def mounts_volume(pod: Object, name: str) -> bool:
    """Whether a container or init container of the pod spec mounts this volume."""
    containers = [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
    return any(mount.get("name") == name for each in containers for mount in each.get("volumeMounts") or ())
