"""Defaults of Jobs and CronJobs."""

from __future__ import annotations

from torchyard.api.checks import MAX_INT32
from torchyard.api.job import labels
from torchyard.api.objects import Object
from torchyard.api.pod.defaults import default_template


def default_job(job: Object) -> None:
    spec = job.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    default_labels(job)
    # neither is set: one pod must succeed; only parallelism is set: a work queue without a fixed number of completions
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = 6 if spec.get("backoffLimitPerIndex") is None else MAX_INT32
    if spec.get("completionMode") is None:
        spec["completionMode"] = "NonIndexed"
    if spec.get("suspend") is None:
        spec["suspend"] = False
    if spec.get("manualSelector") is None:
        spec["manualSelector"] = False
    if spec.get("podReplacementPolicy") is None:
        spec["podReplacementPolicy"] = "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed"
    default_failure_policy(spec)


def default_labels(job: Object) -> None:
    """Label a Job without labels as its pods. Upstream does so whenever it reads one, so that it always has some."""
    own = job["spec"]["template"]["metadata"].get("labels")
    if own and not job["metadata"].get("labels"):
        # Both share one map, as in upstream: a label that is added to the template on create also appears here.
        job["metadata"]["labels"] = own


def default_failure_policy(spec: Object) -> None:
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"


def generate_selector(job: Object) -> None:
    """Select the Job's pods by its uid and label them. User-written values stay, and validation rejects a conflict."""
    spec, meta = job["spec"], job["metadata"]
    template = spec["template"].setdefault("metadata", {})
    own = dict(template.get("labels") or {})
    for key in (labels.LEGACY_JOB_NAME, labels.JOB_NAME):
        own.setdefault(key, meta.get("name") or "")
    for key in (labels.LEGACY_CONTROLLER_UID, labels.CONTROLLER_UID):
        own.setdefault(key, meta.get("uid") or "")
    template["labels"] = own
    selector = dict(spec.get("selector") or {})
    selector["matchLabels"] = {labels.CONTROLLER_UID: meta.get("uid") or "", **(selector.get("matchLabels") or {})}
    spec["selector"] = selector


def default_cron_job(cron_job: Object) -> None:
    spec = cron_job.setdefault("spec", {})
    job_template = spec.setdefault("jobTemplate", {})
    if job_template.get("metadata") is None:
        job_template["metadata"] = {}
    job_spec = job_template.setdefault("spec", {})
    default_template(job_spec.setdefault("template", {}))
    default_failure_policy(job_spec)
    for name, value in (
        ("concurrencyPolicy", "Allow"),
        ("suspend", False),
        ("successfulJobsHistoryLimit", 3),
        ("failedJobsHistoryLimit", 1),
    ):
        if spec.get(name) is None or spec[name] == "":
            spec[name] = value
