"""What is kept of a job that has ended: how, when, and how each of its replicas ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NotRequired, TypedDict

from torchyard.api import quantity
from torchyard.api.metadata import is_uid
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339, to_rfc3339
from torchyard.core.run.failure import ContainerFailure, first_failure
from torchyard.core.run.ranks import choose_replicas, rank_of
from torchyard.core.run.state import run_state, short_name

DELETED = "Deleted"
_GPU = "nvidia.com/gpu"
_MOST_DELETED = 1000  # replicas of a job without ranks that are kept


class ReplicaRecord(TypedDict):
    """How a replica ended. `exitCode` is that of its first failed container, else 0; None if it has not ended.

    `controller` is the uid of the object that controls the pod: the job, or one of the Jobs of a JobSet. It is empty if
    it is not a uid: users can write it.
    """

    name: str
    pod: str
    rank: int | None
    phase: str
    exitCode: int | None
    reason: str
    started: str
    finished: str
    gpus: int
    controller: NotRequired[str]  # not in records of version 0.1


class RunRecord(TypedDict):
    """A job that has ended. Times are RFC 3339, empty if unknown; `object` is the job without its status.

    `controllers` are the uids of those that own its pods, if the replicas do not name them. A record of a job that has
    not ended is `unfinished`; its `ended` is the time of the record.
    """

    uid: str
    namespace: str
    name: str
    kind: str
    state: str
    message: str
    exitCode: int | None
    created: str
    ended: str
    gpuSeconds: int
    replicas: list[ReplicaRecord]
    object: Object
    controllers: NotRequired[list[str]]
    unfinished: NotRequired[bool]


@dataclass(slots=True)
class DeletedReplicas:
    """The replicas of a job that were deleted before it ended: the last of each rank, and the GPU time of all.

    The keys are the names of pods, or what the names of the pods of a rank begin with.
    """

    last: dict[str, ReplicaRecord] = field(default_factory=dict)
    gpu_seconds: int = 0

    def add(self, pod: Object, job: str, now: datetime) -> None:
        replica, metadata = replica_record(pod, job, now), pod["metadata"]
        ended: ReplicaRecord = {**replica, "finished": replica["finished"] or to_rfc3339(now)}
        key = str(metadata["name"] if replica["rank"] is None else metadata.get("generateName") or metadata["name"])
        self.last.pop(key, None)
        self.last[key] = ended if replica["started"] else replica
        if len(self.last) > _MOST_DELETED:
            del self.last[next(iter(self.last))]
        self.gpu_seconds += replica["gpus"] * _seconds(ended, now)

    def add_to(self, record: RunRecord) -> RunRecord:
        """The record with the deleted replicas whose rank no other replica has."""
        present = [(replica["rank"], replica["pod"]) for replica in record["replicas"]]
        missing = [
            replica
            for key, replica in self.last.items()
            if not any(rank == replica["rank"] and pod.startswith(key) for rank, pod in present)
        ]
        replicas = sorted(
            [*record["replicas"], *missing],
            key=lambda replica: (replica["rank"] is None, replica["rank"] or 0, replica["name"]),
        )
        failed = [replica for replica in missing if replica["exitCode"]]
        code = record["exitCode"]
        if code is None and record["state"] == "Failed" and failed:
            code = min(failed, key=lambda replica: replica["finished"])["exitCode"]
        seconds = record["gpuSeconds"] + self.gpu_seconds
        return {**record, "replicas": replicas, "gpuSeconds": seconds, "exitCode": code}


def build_record(job: Object, pods: list[Object], now: datetime, *, deleted: bool = False) -> RunRecord:
    """The record of a job that has ended, or that was deleted before."""
    state, metadata = run_state(job), job["metadata"]
    replicas = [replica_record(pod, metadata["name"], now) for pod in choose_replicas(pods, metadata["name"])]
    failure = first_failure(pods)
    code = 0 if state.succeeded else failure.exit_code if failure else None
    ended = metadata.get("deletionTimestamp") or to_rfc3339(now) if not state.done else _end(job, replicas, now)
    return RunRecord(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        kind=job["kind"],
        state=state.state if state.done or not deleted else DELETED,
        message=state.message or (str(failure) if failure and not state.succeeded else ""),
        exitCode=code,
        created=metadata["creationTimestamp"],
        ended=ended,
        gpuSeconds=sum(replica["gpus"] * _seconds(replica, now) for replica in replicas),
        replicas=replicas,
        object={key: value for key, value in job.items() if key != "status"},
    )


def first_failed_replica(record: RunRecord) -> tuple[ReplicaRecord, ContainerFailure] | None:
    """The replica of a job that failed first. Its container is not recorded."""
    failed = [replica for replica in record["replicas"] if replica["exitCode"]]
    first = min(failed, key=lambda replica: replica["finished"], default=None)
    if first is None or first["exitCode"] is None:
        return None
    return first, ContainerFailure(first["pod"], "", first["exitCode"], first["reason"], first["finished"])


def replica_record(pod: Object, job: str, now: datetime) -> ReplicaRecord:
    """How a replica of a job stands or ended."""
    status = pod.get("status") or {}
    failure = first_failure([pod])
    owners = pod["metadata"].get("ownerReferences") or ()
    ends = [
        container["state"]["terminated"]
        for container in status.get("containerStatuses") or ()
        if (container.get("state") or {}).get("terminated")
    ]
    has_ended = bool(ends) and len(ends) == len(pod["spec"]["containers"])
    return ReplicaRecord(
        name=short_name(pod["metadata"]["name"], job),
        pod=pod["metadata"]["name"],
        rank=rank_of(pod),
        phase=status.get("phase") or "Pending",
        exitCode=failure.exit_code if failure and has_ended else 0 if has_ended else None,
        reason=failure.reason if failure else "",
        started=status.get("startTime") or "",
        finished=max((end.get("finishedAt") or "" for end in ends), default="") if has_ended else "",
        gpus=_gpus(pod),
        controller=next((owner["uid"] for owner in owners if owner.get("controller") and is_uid(owner["uid"])), ""),
    )


def _end(job: Object, replicas: list[ReplicaRecord], now: datetime) -> str:
    status = job.get("status") or {}
    finished = max((replica["finished"] for replica in replicas), default="")
    conditions = [condition for condition in status.get("conditions") or () if condition["type"] == "Failed"]
    failed = conditions[-1].get("lastTransitionTime") if conditions else ""
    return str(status.get("completionTime") or failed or finished or to_rfc3339(now))


def _seconds(replica: ReplicaRecord, now: datetime) -> int:
    if not replica["started"]:
        return 0
    end = parse_rfc3339(replica["finished"]) if replica["finished"] else now
    return max(0, int((end - parse_rfc3339(replica["started"])).total_seconds()))


def _gpus(pod: Object) -> int:
    limits = [(part.get("resources") or {}).get("limits") or {} for part in pod["spec"]["containers"]]
    return sum(quantity.parse(limit[_GPU]).value for limit in limits if limit.get(_GPU))
