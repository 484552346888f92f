"""The job that a pod belongs to, from its labels: what samples usage knows the labels of pods, and not their owners."""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.api.job.labels import CONTROLLER_UID, JOB_NAME
from torchyard.api.jobset.names import JOBSET_NAME, JOBSET_UID
from torchyard.core.run.state import short_name
from torchyard.core.samples.table import SampledJob

# The outermost first: the pods of a JobSet have the labels of its Jobs too.
_LABELS = {
    JOBSET_NAME: "JobSet",
    "training.kubeflow.org/job-name": "PyTorchJob",
    JOB_NAME: "Job",
}
_RESOURCES = {
    "trainjobs.trainer.kubeflow.org": ("TrainJob", "JobSet"),  # whose JobSet has its name
    "jobsets.jobset.x-k8s.io": ("JobSet",),
    "pytorchjobs.kubeflow.org": ("PyTorchJob",),
    "jobs.batch": ("Job",),
    "pods": ("Pod",),
}
RESOURCES = tuple(_RESOURCES)


def sampled_replica(namespace: str, pod: str, labels: Mapping[str, str]) -> tuple[SampledJob, str]:
    """The job of a pod, and the name of the replica in it. A pod without a job is a job of its own."""
    for label, kind in _LABELS.items():
        if name := labels.get(label):
            return SampledJob(namespace, kind, name), short_name(pod, name)
    return SampledJob(namespace, "Pod", pod), pod


def run_uid(labels: Mapping[str, str]) -> str:
    """The uid of the job of a pod; empty if the labels do not have it, as those of PyTorchJobs."""
    if JOBSET_NAME in labels:
        return labels.get(JOBSET_UID, "")
    return labels.get(CONTROLLER_UID, "") if JOB_NAME in labels else ""


def sampled_jobs(namespace: str, resource: str, name: str) -> list[SampledJob]:
    """The names under which the samples of a job are recorded; none for a resource that is not sampled."""
    return [SampledJob(namespace, kind, name) for kind in _RESOURCES.get(resource, ())]
