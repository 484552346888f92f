"""Workload slices: a Job that is elastic grows by a second workload and shrinks in place. Needs a feature gate."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.kueue.harness import Object, Observation, Scenario, cpu_group, scenario_of

GATES = "ElasticJobsViaWorkloadSlices=true"
_ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
_REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
_REPLACED = re.compile(r"(Replaced to accommodate a)[^\"]*")
_GENERATED = re.compile(r"job-([a-z0-9]+?)-[0-9a-f]{5}\b")


class JobScenario(Scenario):
    """Observations have the workloads of Jobs by their age, and what the Jobs look like.

    Kueue has two messages for a slice that was replaced, by whichever of its parts was first.
    """

    has_pending_reasons = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._jobs: list[str] = []

    def job(self, name: str, queue: str, parallelism: int, *, cpu: str | int = 1, priority_class: str = "") -> None:
        labels = {"kueue.x-k8s.io/queue-name": queue}
        if priority_class:
            labels["kueue.x-k8s.io/priority-class"] = self.named(priority_class)
        containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}]
        pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": containers}}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": self.named("ns"), "labels": labels, "annotations": _ELASTIC},
            "spec": {"parallelism": parallelism, "completions": 100, "suspend": True, "template": pod},
        }
        self._jobs.append(name)
        self.expect(self.client.post(f"/apis/batch/v1/namespaces/{self.named('ns')}/jobs", body))

    def resize(self, name: str, parallelism: int) -> None:
        path = f"/apis/batch/v1/namespaces/{self.named('ns')}/jobs/{name}"
        self.expect(self.client.patch(path, {"spec": {"parallelism": parallelism}}))

    def priority_class(self, name: str, value: int) -> None:
        self.create("WorkloadPriorityClass", {"metadata": {"name": self.named(name)}, "value": value})

    def _snapshot(self) -> Observation:
        """Workloads of Jobs have generated names, so they are observed by Job and size."""
        namespace = self.named("ns")
        answer = self.client.get(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads")
        self.expect(answer)
        workloads: list[Object] = sorted(answer.json["items"], key=_age)
        names = {obj["metadata"]["name"]: _label(obj) for obj in workloads}
        self._workloads = [("ns", name) for name in names]
        seen = {
            f"{number} {names[obj['metadata']['name']]}": {
                **(self._workload("ns", obj["metadata"]["name"]) or {}),
                "replaces": _replaced(obj, names),
            }
            for number, obj in enumerate(workloads)
        }
        jobs = {name: self._job(name) for name in self._jobs}
        queues = {name: self._queue(name) for name in self._queues}
        text = self.plain(json.dumps({"workloads": seen, "jobs": jobs, "queues": queues}, sort_keys=True))
        observation: Observation = json.loads(_REPLACED.sub(r"\1 workload", _GENERATED.sub(r"job-\1-?", text)))
        return observation

    def _job(self, name: str) -> Observation:
        answer = self.client.get(f"/apis/batch/v1/namespaces/{self.named('ns')}/jobs/{name}")
        self.expect(answer)
        spec = answer.json["spec"]
        gates = [gate["name"] for gate in spec["template"]["spec"].get("schedulingGates") or ()]
        return {"suspend": spec.get("suspend"), "parallelism": spec["parallelism"], "gates": gates}


def _age(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["creationTimestamp"], _label(obj)


def _label(obj: Object) -> str:
    owner = next(iter(obj["metadata"].get("ownerReferences") or ()), {"name": "?"})
    return f"{owner['name']} {obj['spec']['podSets'][0]['count']}"


def _replaced(obj: Object, names: dict[str, str]) -> str:
    key = (obj["metadata"].get("annotations") or {}).get(_REPLACES, "")
    return names.get(key.rpartition("/")[2], "gone") if key else ""


def _base(s: Scenario, cpus: int = 4, **spec: Any) -> None:
    s.namespace()
    s.flavor("f")
    s.cluster_queue("q", cpu_group(cpus), **spec)


@scenario_of(JobScenario)
def elastic_job_grows_by_a_second_workload(s: JobScenario) -> None:
    _base(s)
    s.job("j", "q", 1)
    s.observe()
    s.resize("j", 3)
    s.observe()


@scenario_of(JobScenario)
def elastic_job_shrinks_in_place(s: JobScenario) -> None:
    _base(s)
    s.job("j", "q", 3)
    s.observe()
    s.resize("j", 1)
    s.observe()
    s.job("next", "q", 3)
    s.observe()


@scenario_of(JobScenario)
def elastic_job_that_cannot_grow_keeps_its_size(s: JobScenario) -> None:
    _base(s, 3)
    s.job("j", "q", 2)
    s.observe()
    s.resize("j", 4)
    s.observe()
    s.resize("j", 3)
    s.observe()


@scenario_of(JobScenario)
def growth_waits_for_quota(s: JobScenario) -> None:
    _base(s, 4)
    s.job("j", "q", 2)
    s.observe()
    s.job("other", "q", 2)
    s.observe()
    s.resize("j", 3)
    s.observe()
    s.resize("other", 1)
    s.observe()


@scenario_of(JobScenario)
def growth_preempts_a_lower_priority(s: JobScenario) -> None:
    _base(s, 4, preemption={"withinClusterQueue": "LowerPriority"})
    s.priority_class("high", 10)
    s.workload("low", "q", cpu=2)
    s.job("j", "q", 2, priority_class="high")
    s.observe()
    s.resize("j", 3)
    s.observe()


@scenario_of(JobScenario)
def pending_elastic_job_changes_its_size(s: JobScenario) -> None:
    _base(s, 2)
    s.job("j", "q", 3)
    s.observe()
    s.resize("j", 2)
    s.observe()
