"""The jobs of a cluster, of every kind that it serves: their list, one by its name, its pods, workload and events."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, EVENTS, JOBS, PODS, STATEFUL_SETS
from torchyard.api.jobset import names as jobset
from torchyard.api.metadata import controller_of
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.queue import names as queue
from torchyard.api.suggestions import closest
from torchyard.api.trainjob import names as trainjob
from torchyard.core.run.state import belongs_to, has_controller, pods_of
from torchyard.kube.client import Client

KINDS: dict[str, GroupVersionResource] = {
    pytorchjob.KIND: GroupVersionResource(pytorchjob.GROUP, pytorchjob.VERSION, pytorchjob.PLURAL),
    trainjob.KIND: GroupVersionResource(trainjob.GROUP, trainjob.VERSION, trainjob.PLURAL),
    jobset.KIND: GroupVersionResource(jobset.GROUP, jobset.VERSION, jobset.PLURAL),
    "Job": JOBS,
    "Pod": PODS,
}
_OTHER_KINDS = {
    "CronJob": CRON_JOBS,
    "Deployment": DEPLOYMENTS,
    "StatefulSet": STATEFUL_SETS,
    "DaemonSet": DAEMON_SETS,
}
_WORKLOADS = tuple(GroupVersionResource(queue.GROUP, version, "workloads") for version in (queue.STORED, "v1beta1"))


def qualified_name(gvr: GroupVersionResource, obj: Object) -> str:
    """Return an object's name as kubectl prints it: `job.batch/mnist`."""
    kind = obj["kind"].lower()
    return f"{kind}.{gvr.group}/{obj['metadata']['name']}" if gvr.group else f"{kind}/{obj['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A job and its resource. `object` has its kind."""

    gvr: GroupVersionResource
    object: Object

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"]["namespace"])

    @property
    def qualified_name(self) -> str:
        return qualified_name(self.gvr, self.object)

    @property
    def owner_reference(self) -> Object:
        """What an object that is deleted with the job names as its owner."""
        return {
            "apiVersion": self.gvr.api_version,
            "kind": self.object["kind"],
            "name": self.name,
            "uid": self.object["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }


async def list_jobs(client: Client, namespace: str = "", *, labels: str = "") -> list[JobHandle]:
    """The jobs of a namespace, or of all, that no other object controls; sorted by namespace and name."""
    lists = await asyncio.gather(*(_list(client, gvr, namespace, labels) for gvr in KINDS.values()))
    jobs = [
        JobHandle(gvr, {"kind": kind, "apiVersion": gvr.api_version, **obj})
        for (kind, gvr), items in zip(KINDS.items(), lists, strict=True)
        for obj in items
        if not has_controller(obj)
    ]
    return sorted(jobs, key=lambda job: (job.namespace, job.name))


async def find_job(client: Client, name: str, namespace: str) -> JobHandle:
    """The job of a name, which may have its kind in front: `mnist`, `job/mnist`, `pytorchjob.kubeflow.org/mnist`."""
    prefix, _, plain = name.rpartition("/")
    kinds = {kind: gvr for kind, gvr in KINDS.items() if not prefix or prefix.lower() in _spellings(kind, gvr)}
    if not kinds:
        raise YardError(
            f"{name}: {prefix} is not a kind of job",
            hint=f"the kinds are {', '.join(KINDS)}; use kubectl for others",
            code="BadOption",
        )
    objects = await asyncio.gather(*(client.find(gvr, plain, namespace) for gvr in kinds.values()))
    jobs = [
        JobHandle(gvr, {"kind": kind, "apiVersion": gvr.api_version, **obj})
        for (kind, gvr), obj in zip(kinds.items(), objects, strict=True)
        if obj is not None
    ]
    if not prefix:  # a TrainJob has a JobSet of its name
        jobs = [job for job in jobs if not has_controller(job.object)] or jobs
    if len(jobs) == 1:
        return jobs[0]
    if jobs:
        choices = " or ".join(job.qualified_name for job in jobs)
        raise YardError(
            f"{len(jobs)} jobs are called {plain} in namespace {namespace}", hint=f"name {choices}", code="BadOption"
        )
    hint = await _hint_about_other_kind(client, plain, namespace)
    if not hint:
        similar = closest(plain, [job.name for job in await list_jobs(client, namespace)])
        hint = f"did you mean {similar}?" if similar else "list the jobs with `yard ps -A`"
    raise YardError(f"no job is called {plain} in namespace {namespace}", hint=hint, code="NotFound")


def _is_controlled_by(obj: Object, uid: str) -> bool:
    controller = controller_of(obj)
    return controller is not None and controller["uid"] == uid


async def _hint_about_other_kind(client: Client, name: str, namespace: str) -> str:
    """What to do instead with the name of an object that is no job; empty if there is none that can be read."""
    for kind, gvr in _OTHER_KINDS.items():
        try:
            obj = await client.find(gvr, name, namespace)
        except StatusError:
            continue
        if obj is None:
            continue
        if kind != "CronJob":
            return f"{name} is a {kind}, which is not a job: use kubectl, such as `kubectl logs {kind.lower()}/{name}`"
        uid = obj["metadata"]["uid"]
        jobs = await _list(client, JOBS, namespace, "")
        created = sorted(job["metadata"]["name"] for job in jobs if _is_controlled_by(job, uid))
        return f"{name} is a CronJob; it has created {', '.join(created) or 'no job yet'}"
    return ""


async def find_workload(client: Client, job: Object) -> Object | None:
    """The workload of a queued job; None if there is none, or no Kueue."""
    labels = f"{queue.JOB_UID}={job['metadata']['uid']}"
    for gvr in _WORKLOADS:
        workloads = await _list(client, gvr, job["metadata"]["namespace"], labels)
        if workloads:
            return max(workloads, key=lambda workload: str(workload["metadata"]["creationTimestamp"]))
    return None


async def served_kinds(client: Client) -> list[str]:
    """The kinds of `KINDS` that the server serves."""
    served = await asyncio.gather(*(_is_served(client, gvr) for gvr in KINDS.values()))
    return [kind for kind, is_served in zip(KINDS, served, strict=True) if is_served]


async def pods_of_job(client: Client, job: JobHandle) -> list[Object]:
    """The pods of a job, not those of an earlier job of the same name; sorted by name."""
    labels, fields = pods_of(job.object)
    uid = job.object["metadata"]["uid"]
    pods = (await client.list(PODS, job.namespace, labels=labels, fields=fields)).items
    return sorted((pod for pod in pods if belongs_to(pod, uid)), key=lambda pod: str(pod["metadata"]["name"]))


async def events_of(client: Client, job: JobHandle) -> list[Object]:
    """The events of a job, its workload, its Jobs and its pods, oldest first."""
    workload = await find_workload(client, job.object)
    owners = [job.object, *([workload] if workload else []), *await parts_of(client, job)]
    owners += await pods_of_job(client, job)
    uids = {owner["metadata"]["uid"] for owner in owners}
    events = (await client.list(EVENTS, job.namespace)).items
    own = [event for event in events if (event.get("involvedObject") or {}).get("uid") in uids]
    return sorted(own, key=last_seen)


async def parts_of(client: Client, job: JobHandle) -> list[Object]:
    """The JobSet of a TrainJob, and the Jobs of a JobSet: what hinders their pods is in their events."""
    kind = job.object["kind"]
    if kind not in (trainjob.KIND, jobset.KIND):
        return []
    sets = [await client.find(KINDS[jobset.KIND], job.name, job.namespace)] if kind == trainjob.KIND else []
    labels = f"{jobset.JOBSET_NAME}={job.name}"
    return [obj for obj in sets if obj is not None] + await _list(client, JOBS, job.namespace, labels)


def last_seen(event: Object) -> str:
    """When an event was last seen. Whichever of its times is set, the texts compare as times do."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])


async def _is_served(client: Client, gvr: GroupVersionResource) -> bool:
    if not gvr.group:
        return True
    try:
        resources = await client.raw("GET", f"/apis/{gvr.api_version}")
    except StatusError as error:
        if error.status != 404:
            raise
        return False
    return any(resource["name"] == gvr.plural for resource in resources.get("resources") or ())


def is_kind(text: str) -> bool:
    """Whether a text names a kind of job, as in front of a job's name."""
    return any(text.lower() in _spellings(kind, gvr) for kind, gvr in KINDS.items())


def _spellings(kind: str, gvr: GroupVersionResource) -> tuple[str, ...]:
    singular = kind.lower()
    return singular, gvr.plural, f"{singular}.{gvr.group}", f"{gvr.plural}.{gvr.group}"


async def _list(client: Client, gvr: GroupVersionResource, namespace: str, labels: str) -> list[Object]:
    """The objects of a resource; none if the server does not serve it."""
    try:
        return list((await client.list(gvr, namespace, labels=labels)).items)
    except StatusError as error:
        if error.status != 404:
            raise
        return []
