"""TrainJobs in queues, as Kueue's integration `trainer.kubeflow.org/trainjob`.

The pod sets are the replicated jobs of the JobSet that the job makes. What an admission adds to their pods is a patch
of the runtime in the job itself.
"""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api.conditions import find
from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.queue import names as queues
from torchyard.api.trainjob import messages, names
from torchyard.core.queue.integrations import JobResult, PodSetInfo, PodSetsUnknown, apply_pod_set_info
from torchyard.core.queue.jobset_integration import JobSetIntegration
from torchyard.core.trainjob.jobset import make_jobset

_PATCHES = "runtimePatches"


class TrainJobIntegration:
    """`runtime_of` returns the runtime of a job as it was when the job was created; None if that is not known yet."""

    group, kind, framework = names.GROUP, names.KIND, "trainer.kubeflow.org/trainjob"

    def __init__(self, runtime_of: Callable[[Object], Object | None]) -> None:
        self._runtime_of = runtime_of
        self._jobsets = JobSetIntegration()

    def pod_sets(self, job: Object) -> list[Object]:
        return self._jobsets.pod_sets(self._jobset(job))

    def is_suspended(self, job: Object) -> bool:
        return bool(job["spec"].get("suspend"))

    def active_pods(self, job: Object) -> int:
        return sum(int(status["active"]) for status in (job.get("status") or {}).get("jobsStatus") or ())

    def result(self, job: Object) -> JobResult | None:
        conditions = (job.get("status") or {}).get("conditions") or ()
        for type in messages.TERMINAL:
            condition = find(conditions, type)
            if condition is not None and condition["status"] == "True":
                return JobResult(type == messages.COMPLETE, condition.get("message") or "")
        return None

    def pods_ready(self, job: Object) -> bool:
        return self._jobsets.pods_ready(self._jobset(job))

    def reclaimable_pods(self, job: Object) -> dict[str, int]:
        return self._jobsets.reclaimable_pods(self._jobset(job))

    def start(self, job: Object, infos: list[PodSetInfo]) -> Object:
        templates = {pod_set["name"]: pod_set["template"] for pod_set in self.pod_sets(job)}
        patches = [_replicated_job_patch(info, templates[info.name]) for info in infos]
        spec: Object = {"suspend": False}
        changes = [patch for patch in patches if len(patch) > 1]
        if changes:
            content = {"template": {"spec": {"replicatedJobs": changes}}}
            spec[_PATCHES] = [*_others(job), {"manager": queues.PATCH_MANAGER, "trainingRuntimeSpec": content}]
        return {"spec": spec}

    def suspend(self, job: Object) -> Object:
        return {"spec": {"suspend": True}}

    def restore(self, job: Object, pod_sets: list[Object]) -> Object | None:
        own = next((patch for patch in _patches(job) if patch["manager"] == queues.PATCH_MANAGER), {})
        if not own.get("trainingRuntimeSpec"):
            return None
        return {"spec": {_PATCHES: [*_others(job), {"manager": queues.PATCH_MANAGER}]}}

    def _jobset(self, job: Object) -> Object:
        """The JobSet without what an admission added, with the counts of the job's status."""
        runtime = self._runtime_of(job)
        if runtime is None:
            raise PodSetsUnknown("the runtime of the TrainJob is not known yet")
        try:
            jobset = make_jobset({**job, "spec": {**job["spec"], _PATCHES: _others(job)}}, runtime)
        except (KeyError, TypeError) as error:  # a runtime of which no JobSet can be made; the job has a condition
            raise YardError(f"no JobSet can be made of the runtime: {error!r}") from error
        return {**jobset, "status": {"replicatedJobsStatus": (job.get("status") or {}).get("jobsStatus") or []}}


def _patches(job: Object) -> list[Object]:
    return job["spec"].get(_PATCHES) or []


def _others(job: Object) -> list[Object]:
    return [patch for patch in _patches(job) if patch["manager"] != queues.PATCH_MANAGER]


def _replicated_job_patch(info: PodSetInfo, template: Object) -> Object:
    """What an admission adds to the pods of one replicated job; only its name if it adds nothing."""
    started = apply_pod_set_info(template, info)  # raises if the two contradict each other
    spec: Object = {"nodeSelector": info.node_selector} if info.node_selector else {}
    if started["spec"].get("tolerations") != (template.get("spec") or {}).get("tolerations"):
        spec["tolerations"] = started["spec"]["tolerations"]  # a patch replaces the whole list
    metadata = {
        field: values for field, values in (("labels", info.labels), ("annotations", info.annotations)) if values
    }
    pod = {key: value for key, value in (("metadata", metadata), ("spec", spec)) if value}
    return {"name": info.name, "template": {"spec": {"template": pod}}} if pod else {"name": info.name}
