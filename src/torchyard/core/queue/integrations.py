"""What queues ask of a kind of job: which pods it wants, and how it is started, stopped and made as it was.

One adapter per kind; pure. Patches are merge patches.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Protocol

from torchyard.api.conditions import find, is_true
from torchyard.api.errors import YardError
from torchyard.api.job.labels import CONTROLLER_UID, JOB_NAME, LEGACY_CONTROLLER_UID, LEGACY_JOB_NAME
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import messages as pytorchjob_messages
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.pytorchjob.defaults import with_defaults
from torchyard.api.queue import names

_CONTROLLER_LABELS = (CONTROLLER_UID, JOB_NAME, LEGACY_CONTROLLER_UID, LEGACY_JOB_NAME)


class CannotStart(YardError):
    """What was admitted contradicts what the job says."""

    code = "CannotStart"


@dataclass(frozen=True)
class PodSetInfo:
    """What an admission adds to the pods of one pod set."""

    name: str
    count: int
    selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[Object] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class Adapter(Protocol):
    group: str
    kind: str
    framework: str  # in the names of event sources

    def pod_sets(self, job: Object) -> list[Object]:
        """The pod sets of its workload, their templates as the user wrote them."""
        ...

    def is_suspended(self, job: Object) -> bool: ...

    def active(self, job: Object) -> int:
        """Pods that still use what they were given."""
        ...

    def ended(self, job: Object) -> tuple[bool, str] | None:
        """Whether it succeeded, and its last words; None while it goes on."""
        ...

    def is_ready(self, job: Object) -> bool: ...

    def reclaimable(self, job: Object) -> dict[str, int]:
        """Pods by pod set that will not be needed again."""
        ...

    def start(self, job: Object, infos: list[PodSetInfo]) -> Object: ...

    def suspend(self, job: Object) -> Object: ...

    def restore(self, job: Object, pod_sets: list[Object]) -> Object | None:
        """Makes a suspended job what it was before it was started; None if it is."""
        ...


def injected(template: Object, info: PodSetInfo) -> Object:
    """A template with what the admission adds. Raises `CannotStart` where the two contradict each other."""
    made = copy.deepcopy(template)
    spec, metadata = made.setdefault("spec", {}), made.setdefault("metadata", {}) or {}
    made["metadata"] = metadata
    spec["nodeSelector"] = _merged(spec.get("nodeSelector"), info.selector, "node selector")
    metadata["labels"] = _merged(metadata.get("labels"), info.labels, "label")
    metadata["annotations"] = _merged(metadata.get("annotations"), info.annotations, "annotation")
    for holder, name in ((spec, "nodeSelector"), (metadata, "labels"), (metadata, "annotations")):
        if not holder[name]:
            del holder[name]
    have = spec.get("tolerations") or []
    more = [one for one in info.tolerations if one not in have]
    if more:
        spec["tolerations"] = [*have, *more]
    return made


def _merged(have: dict[str, str] | None, more: dict[str, str], what: str) -> dict[str, str]:
    for key, value in more.items():
        if have and have.get(key, value) != value:
            raise CannotStart(f"the {what} {key} is {have[key]!r} in the job and {value!r} by its admission")
    return {**(have or {}), **more}


def _as_was(current: Object, original: Object, kept: tuple[str, ...] = ()) -> Object:
    """A template with the injectable parts of the original: the rest cannot have changed."""
    made = copy.deepcopy(current)
    spec, metadata = made.setdefault("spec", {}), made.get("metadata") or {}
    was_spec, was_metadata = original.get("spec") or {}, original.get("metadata") or {}
    for holder, was, name in (
        (spec, was_spec, "nodeSelector"),
        (spec, was_spec, "tolerations"),
        (metadata, was_metadata, "labels"),
        (metadata, was_metadata, "annotations"),
    ):
        value = copy.deepcopy(was.get(name))
        if name == "labels":
            own = {key: text for key, text in (holder.get("labels") or {}).items() if key in kept}
            value = {**(value or {}), **own} or None
        if value:
            holder[name] = value
        else:
            holder.pop(name, None)
    if metadata:
        made["metadata"] = metadata
    else:
        made.pop("metadata", None)
    return made


def _replacing(before: Object, after: Object) -> Object:
    """A merge patch that turns one template into the other: what is gone must be said to be null."""
    patch: Object = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if key not in after:
            patch[key] = None
        elif isinstance(old, dict) and isinstance(new, dict):
            inner = _replacing(old, new)
            if inner:
                patch[key] = inner
        elif old != new:
            patch[key] = new
    return patch


class BatchJob:
    group, kind, framework = "batch", "Job", "batch/job"

    def pod_sets(self, job: Object) -> list[Object]:
        spec, annotations = job["spec"], job["metadata"].get("annotations") or {}
        template = copy.deepcopy(spec["template"])
        metadata = template.get("metadata") or {}
        labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in _CONTROLLER_LABELS}
        kept = {"labels": labels, "annotations": metadata.get("annotations") or {}}
        template["metadata"] = {key: value for key, value in kept.items() if value}
        made: Object = {"name": names.MAIN, "count": self.count(job), "template": template}
        least = annotations.get(names.MIN_PARALLELISM)
        if least is not None:
            if not least.isdigit() or not 0 < int(least) < made["count"]:
                raise YardError(
                    f"the annotation {names.MIN_PARALLELISM} is {least!r}",
                    hint=f"write a number from 1 to {made['count'] - 1}, one less than the parallelism",
                )
            made["minCount"] = int(least)
        return [made]

    def count(self, job: Object) -> int:
        """How many pods it runs at once."""
        parallelism, completions = job["spec"].get("parallelism", 1), job["spec"].get("completions")
        return int(min(parallelism, completions) if completions is not None else parallelism)

    def is_suspended(self, job: Object) -> bool:
        return bool(job["spec"].get("suspend"))

    def active(self, job: Object) -> int:
        status = job.get("status") or {}
        return int(status.get("active") or 0) + int(status.get("terminating") or 0)

    def ended(self, job: Object) -> tuple[bool, str] | None:
        conditions = (job.get("status") or {}).get("conditions") or ()
        for type in ("Complete", "Failed"):
            found = find(conditions, type)
            if found is not None and found["status"] == "True":
                return type == "Complete", found.get("message") or "Job finished successfully"
        return None

    def is_ready(self, job: Object) -> bool:
        status = job.get("status") or {}
        there = int(status.get("ready") or 0) + int(status.get("succeeded") or 0)
        return there >= self.count(job)

    def reclaimable(self, job: Object) -> dict[str, int]:
        spec, done = job["spec"], int((job.get("status") or {}).get("succeeded") or 0)
        parallelism = self.count(job)
        if parallelism <= 1 or not done:
            return {}
        completions = spec.get("completions")
        left = (completions if completions is not None else parallelism) - done
        return {names.MAIN: parallelism - max(0, left)} if left < parallelism else {}

    def start(self, job: Object, infos: list[PodSetInfo]) -> Object:
        spec = job["spec"]
        template = _replacing(spec["template"], injected(spec["template"], infos[0]))
        patch: Object = {"suspend": False}
        if template:
            patch["template"] = template
        if infos[0].count < self.count(job):
            patch["parallelism"] = infos[0].count
            if (job["metadata"].get("annotations") or {}).get(names.SYNC_COMPLETIONS) == "true":
                patch["completions"] = infos[0].count
        return {"spec": patch}

    def suspend(self, job: Object) -> Object:
        return {"spec": {"suspend": True}}

    def restore(self, job: Object, pod_sets: list[Object]) -> Object | None:
        current, annotations = job["spec"]["template"], job["metadata"].get("annotations") or {}
        patch: Object = {}
        template = _replacing(current, _as_was(current, pod_sets[0]["template"], _CONTROLLER_LABELS))
        if template:
            patch["template"] = template
        if names.MIN_PARALLELISM in annotations and self.count(job) != pod_sets[0]["count"]:
            patch["parallelism"] = pod_sets[0]["count"]
            if annotations.get(names.SYNC_COMPLETIONS) == "true":
                patch["completions"] = pod_sets[0]["count"]
        return {"spec": patch} if patch else None


class PyTorchJob:
    group, kind, framework = pytorchjob.GROUP, pytorchjob.KIND, "kubeflow.org/pytorchjob"

    def _replicas(self, job: Object) -> list[tuple[str, Object]]:
        found = with_defaults(job)["spec"]["pytorchReplicaSpecs"]
        return [(kind, found[kind]) for kind in pytorchjob.REPLICA_TYPES if kind in found]

    def pod_sets(self, job: Object) -> list[Object]:
        elastic = job["spec"].get("elasticPolicy") or {}
        given = job["spec"].get("pytorchReplicaSpecs") or {}
        sets: list[Object] = []
        for kind, replica in self._replicas(job):
            template = copy.deepcopy(given[kind].get("template") or {})
            metadata = template.get("metadata") or {}
            template["metadata"] = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
            made: Object = {"name": kind.lower(), "count": replica["replicas"], "template": template}
            least = elastic.get("minReplicas")
            if kind == pytorchjob.WORKER and least is not None and least < made["count"]:
                made["minCount"] = least  # an elastic job starts with what there is
            sets.append(made)
        return sets

    def is_suspended(self, job: Object) -> bool:
        return bool((job["spec"].get("runPolicy") or {}).get("suspend"))

    def active(self, job: Object) -> int:
        statuses = (job.get("status") or {}).get("replicaStatuses") or {}
        return sum(int((one or {}).get("active") or 0) for one in statuses.values())

    def ended(self, job: Object) -> tuple[bool, str] | None:
        conditions = (job.get("status") or {}).get("conditions") or ()
        for type in pytorchjob_messages.TERMINAL:
            found = find(conditions, type)
            if found is not None and found["status"] == "True":
                return type == pytorchjob_messages.SUCCEEDED, found.get("message") or ""
        return None

    def is_ready(self, job: Object) -> bool:
        return is_true((job.get("status") or {}).get("conditions") or (), pytorchjob_messages.RUNNING)

    def reclaimable(self, job: Object) -> dict[str, int]:
        statuses = (job.get("status") or {}).get("replicaStatuses") or {}
        done = {kind.lower(): int((statuses.get(kind) or {}).get("succeeded") or 0) for kind in statuses}
        return {name: count for name, count in done.items() if count}

    def start(self, job: Object, infos: list[PodSetInfo]) -> Object:
        by_name = {one.name: one for one in infos}
        replicas: Object = {}
        given = job["spec"]["pytorchReplicaSpecs"]
        for kind, replica in self._replicas(job):
            info = by_name[kind.lower()]
            before = given[kind].get("template") or {}
            template = _replacing(before, injected(before, info))
            change: Object = {"template": template} if template else {}
            if info.count < replica["replicas"]:
                change["replicas"] = info.count
            if change:
                replicas[kind] = change
        spec: Object = {"runPolicy": {"suspend": False}}
        return {"spec": {**spec, "pytorchReplicaSpecs": replicas} if replicas else spec}

    def suspend(self, job: Object) -> Object:
        return {"spec": {"runPolicy": {"suspend": True}}}

    def restore(self, job: Object, pod_sets: list[Object]) -> Object | None:
        by_name = {one["name"]: one for one in pod_sets}
        replicas: Object = {}
        for kind, replica in (job["spec"].get("pytorchReplicaSpecs") or {}).items():
            was = by_name.get(kind.lower())
            if was is None or replica is None:
                continue
            current = replica.get("template") or {}
            template = _replacing(current, _as_was(current, was["template"]))
            change: Object = {"template": template} if template else {}
            if "minCount" in was and replica.get("replicas") != was["count"]:
                change["replicas"] = was["count"]
            if change:
                replicas[kind] = change
        return {"spec": {"pytorchReplicaSpecs": replicas}} if replicas else None


ADAPTERS: tuple[Adapter, ...] = (BatchJob(), PyTorchJob())


def queue_of(job: Object) -> str:
    """The queue a job asks for; empty if it leaves queues alone."""
    return str((job["metadata"].get("labels") or {}).get(names.QUEUE_NAME, ""))
