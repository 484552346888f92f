"""The input of a decision about a JobSet: the JobSet and its child Jobs, by what became of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from torchyard.api.jobset import names
from torchyard.api.objects import Object

COMPLETE, FAILED = "Complete", "Failed"


@dataclass(frozen=True, slots=True)
class JobSetView:
    jobset: Object
    now: datetime
    active: tuple[Object, ...]
    successful: tuple[Object, ...]
    failed: tuple[Object, ...]
    previous: tuple[Object, ...]  # Jobs of an earlier attempt, to be deleted
    has_service: bool
    claims: frozenset[str]  # names of its PersistentVolumeClaims that exist

    @classmethod
    def of(
        cls,
        jobset: Object,
        now: datetime,
        jobs: Iterable[Object],
        *,
        has_service: bool,
        claims: Iterable[str] = (),
    ) -> JobSetView:
        """`jobs` are those that the JobSet controls."""
        kinds: dict[str, list[Object]] = {"": [], COMPLETE: [], FAILED: [], "previous": []}
        for job in sorted(jobs, key=lambda job: str(job["metadata"]["name"])):
            kinds["previous" if is_previous(jobset, job) else finished_type(job)].append(job)
        return cls(
            jobset,
            now,
            active=tuple(kinds[""]),
            successful=tuple(kinds[COMPLETE]),
            failed=tuple(kinds[FAILED]),
            previous=tuple(kinds["previous"]),
            has_service=has_service,
            claims=frozenset(claims),
        )

    @property
    def spec(self) -> Object:
        spec: Object = self.jobset["spec"]
        return spec

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def replicated_jobs(self) -> list[Object]:
        return self.spec.get("replicatedJobs") or []

    @property
    def job_names(self) -> set[str]:
        jobs = (*self.active, *self.successful, *self.failed, *self.previous)
        return {job["metadata"]["name"] for job in jobs}


def finished_type(job: Object) -> str:
    """`Complete`, `Failed`, or empty for an active Job."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in (COMPLETE, FAILED) and condition["status"] == "True":
            return str(condition["type"])
    return ""


def replicated_job_of(job: Object) -> str:
    return str((job["metadata"].get("labels") or {}).get(names.REPLICATED_JOB_NAME, ""))


def job_index_of(job: Object) -> int:
    return _number((job["metadata"].get("labels") or {}).get(names.JOB_INDEX))


def is_suspended(job: Object) -> bool:
    return bool(job["spec"].get("suspend"))


def is_previous(jobset: Object, job: Object) -> bool:
    """Whether a Job belongs to an earlier attempt of the JobSet, or of this Job alone."""
    status = jobset.get("status") or {}
    labels = job["metadata"].get("labels") or {}
    if _number(labels.get(names.RESTART_ATTEMPT)) < (status.get("restarts") or 0):
        return True
    return _number(labels.get(names.JOB_RESTART_ATTEMPT)) < job_restarts(
        jobset, replicated_job_of(job), job_index_of(job)
    )


def job_restarts(jobset: Object, replicated_job: str, index: int) -> int:
    """How often a single Job was restarted by the action RestartJob."""
    for entry in (jobset.get("status") or {}).get("replicatedJobsStatus") or ():
        restarts = entry.get("jobRestarts") or []
        if entry["name"] == replicated_job and index < len(restarts):
            return int(restarts[index])
    return 0


def restarts_single_jobs(spec: Object) -> bool:
    """Whether a rule of the failure policy restarts single Jobs."""
    rules = (spec.get("failurePolicy") or {}).get("rules") or ()
    return any(rule.get("action") in (names.RESTART_JOB, names.RESTART_JOB_FREE) for rule in rules)


def _number(text: str | None) -> int:
    """The value of a label that the controller wrote; another client may have changed it."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0
