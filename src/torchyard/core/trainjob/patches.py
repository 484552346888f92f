"""The runtime's template with the patches of a job, each a strategic merge patch of a JobSet's spec."""

from __future__ import annotations

from functools import cache

from torchyard.api.objects import Object
from torchyard.api.patch.strategic_merge import apply_strategic_merge_patch
from torchyard.api.schema.builtin import definition
from torchyard.api.schema.types import Type


@cache
def _jobset_spec() -> Type:
    """The type of what a patch may contain: replicated jobs, merged by name."""
    job = Type(
        "object",
        fields={"name": Type("string"), "template": definition("io.k8s.api.batch.v1.JobTemplateSpec")},
    )
    jobs = Type("list", items=job, patch_strategy=("merge",), patch_merge_key="name")
    return Type("object", fields={"replicatedJobs": jobs})


def patched_template(runtime: Object, job: Object) -> Object:
    """The template of the JobSet: its metadata and its spec. The runtime's order of jobs stays."""
    template = runtime["spec"].get("template") or {}
    metadata: Object = {
        field: dict((template.get("metadata") or {}).get(field) or {}) for field in ("labels", "annotations")
    }
    spec = dict(template.get("spec") or {})
    order = [replicated_job["name"] for replicated_job in spec.get("replicatedJobs") or ()]
    for patch in job["spec"].get("runtimePatches") or ():
        change = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
        for field, values in metadata.items():
            values.update((change.get("metadata") or {}).get(field) or {})
        spec = apply_strategic_merge_patch(spec, change.get("spec") or {}, _jobset_spec())
    spec["replicatedJobs"] = sorted(spec.get("replicatedJobs") or (), key=lambda each: order.index(each["name"]))
    return {"metadata": metadata, "spec": spec}
