"""A suspended Job as it is resumed, with what a queue wrote into the JobSet's pod template meanwhile."""

from __future__ import annotations

from torchyard.api.objects import Object

_MERGED_MAPS = (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector"))
_MERGED_LISTS = (("spec", "tolerations"), ("spec", "schedulingGates"))


def resumed(job: Object, replicated_job: Object) -> Object:
    """Values are merged, not replaced: the Job's own labels and those of other controllers stay."""
    template = dict(job["spec"]["template"])
    wanted = ((replicated_job.get("template") or {}).get("spec") or {}).get("template") or {}
    for holder, name in _MERGED_MAPS:
        new = (wanted.get(holder) or {}).get(name) or {}
        if new:
            own = template.get(holder) or {}
            template[holder] = {**own, name: {**(own.get(name) or {}), **new}}
    for holder, name in _MERGED_LISTS:
        own = template.get(holder) or {}
        present = own.get(name) or []
        added = [value for value in (wanted.get(holder) or {}).get(name) or () if value not in present]
        if added:
            template[holder] = {**own, name: [*present, *added]}
    return {**job, "spec": {**job["spec"], "template": template, "suspend": False}}
