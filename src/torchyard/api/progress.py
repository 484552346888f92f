"""Where jobs show their progress.

A TrainJob has a field for it (`status.trainerStatus`). The schemas of PyTorchJobs, JobSets and Jobs belong to others,
and a server drops fields that they do not have; these jobs have annotations.
"""

from __future__ import annotations

import json

from torchyard.api.objects import Object

TRAINER_STATUS = "trainerStatus"
# Annotations: the same object as JSON, and a text for people.
STATUS_ANNOTATION = "torchyard.dev/trainer-status"
TEXT_ANNOTATION = "torchyard.dev/progress"
TEXT_FIELD = "progress"  # the text in the status of a TrainJob
# The column of `kubectl get` in a CustomResourceDefinition.
ANNOTATION_COLUMN: Object = {
    "name": "Progress",
    "type": "string",
    "description": "How far the training is, as it reports.",
    "jsonPath": r".metadata.annotations.torchyard\.dev/progress",
}


def progress_text_of(job: Object) -> str:
    """The progress of a job of any kind as a text; empty without reports."""
    in_status = (job.get("status") or {}).get(TEXT_FIELD)
    annotations = job["metadata"].get("annotations") or {}
    return str(in_status or annotations.get(TEXT_ANNOTATION) or "")


def trainer_status_of(job: Object) -> Object | None:
    """The progress of a job of any kind in the format of a TrainJob; None without reports."""
    status: Object | None = (job.get("status") or {}).get(TRAINER_STATUS)
    if isinstance(status, dict):
        return status
    written = (job["metadata"].get("annotations") or {}).get(STATUS_ANNOTATION)
    if not written:
        return None
    try:
        parsed = json.loads(written)
    except ValueError:  # a user changed it
        return None
    return parsed if isinstance(parsed, dict) else None
