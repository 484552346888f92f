"""Runs cases on a server, all at the same time: a step of every case, then time to react, then the next."""

from __future__ import annotations

import copy
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tests.jobset import refusals
from tests.jobset.cases import HOLD, NAME, Case
from tests.jobset.observation import observe, refusal
from tests.support.http import Answer, Client

Object = dict[str, Any]
States = dict[str, Object]
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2"
_KINDS = {
    "jobsets": JOBSETS,
    "jobs": "/apis/batch/v1",
    "services": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "events": "/api/v1",
}
_API_VERSION = "jobset.x-k8s.io/v1alpha2"
_STARTED, _ENDED = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
_NEVER_THERE = 404


class Runner:
    """`prefix` keeps the namespaces of several runs on one server apart."""

    def __init__(self, client: Client, cases: list[Case], prefix: str = "") -> None:
        self._client, self.cases, self._prefix = client, cases, prefix
        self.answers: dict[str, list[int]] = {case.name: [] for case in cases}

    def namespace(self, case: str) -> str:
        return f"{self._prefix}{case}"

    def start(self) -> None:
        for case in self.cases:
            namespace = self.namespace(case.name)
            self._client.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
            self._create(case, copy.deepcopy(case.jobset))

    def _create(self, case: Case, jobset: Object) -> None:
        body = {"apiVersion": _API_VERSION, "kind": "JobSet", **jobset}
        self._note(case, self._client.post(f"{JOBSETS}/namespaces/{self.namespace(case.name)}/jobsets", body))

    def _note(self, case: Case, answer: Answer) -> None:
        self.answers[case.name].append(answer.status)

    def step(self, number: int) -> bool:
        """Take a step of every case that has so many; whether there was one."""
        stepped = [case for case in self.cases if number < len(case.steps)]
        for case in stepped:
            self._do(case, case.steps[number])
        return bool(stepped)

    def _do(self, case: Case, step: Object) -> None:
        namespace = self.namespace(case.name)
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{step.get('job')}"
        match step["do"]:
            case "status":
                answer = self._set_status(path, step)
            case "hold" | "release":
                finalizers = [HOLD] if step["do"] == "hold" else []
                answer = self._client.patch(path, {"metadata": {"finalizers": finalizers}})
                if answer.status == 200 and step["do"] == "release":
                    answer = self._client.get("/version")
            case "delete":
                answer = self._client.delete(path, {"propagationPolicy": "Background"})
            case "suspend" | "resume":
                answer = self._suspend(namespace, step)
        self._note(case, answer)

    def _set_status(self, path: str, step: Object) -> Answer:
        job = self._client.get(path)
        if job.status == _NEVER_THERE:
            return job
        body = {**job.json, "status": job_status(job.json, step)}
        return self._client.put(f"{path}/status", body)

    def _suspend(self, namespace: str, step: Object) -> Answer:
        path = f"{JOBSETS}/namespaces/{namespace}/jobsets/{NAME}"
        for _ in range(20):  # a controller may write in between
            answer = self._client.get(path)
            if answer.status == _NEVER_THERE:
                return answer
            jobset = answer.json
            jobset["spec"]["suspend"] = step["do"] == "suspend"
            template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
            template["spec"].update(step.get("pod", {}))
            if "labels" in step:
                template["metadata"] = {**(template.get("metadata") or {}), "labels": step["labels"]}
            answer = self._client.put(path, jobset)
            if answer.status != 409:
                break
        return answer

    def states(self) -> States:
        objects: dict[str, dict[str, list[Object]]] = {
            self.namespace(case.name): {kind: [] for kind in _KINDS} for case in self.cases
        }
        for kind, path in _KINDS.items():
            for obj in self._client.get(f"{path}/{kind}").json["items"]:
                namespace = obj["metadata"]["namespace"]
                if namespace in objects and not (kind == "events" and obj["involvedObject"]["kind"] != "JobSet"):
                    objects[namespace][kind].append(obj)
        return {
            case.name: observe(self.namespace(case.name), objects[self.namespace(case.name)]) for case in self.cases
        }


def job_status(job: Object, step: Object) -> Object:
    spec = job["spec"]
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    count = min(parallelism, completions if completions is not None else parallelism)
    before = job.get("status") or {}
    start = {} if spec.get("suspend") and not before.get("startTime") else {"startTime": _STARTED}
    match step["to"]:
        case "idle":
            return {**start, "active": 0, "ready": 0}
        case "active":
            return {**start, "active": count, "ready": 0}
        case "ready":
            return {**start, "active": count, "ready": count}
        case "complete":
            wanted = completions if completions is not None else 1
            done: Object = {"startTime": _STARTED, "completionTime": _ENDED, "succeeded": wanted, "ready": 0}
            if spec.get("completionMode") == "Indexed":
                done["completedIndexes"] = "0" if wanted == 1 else f"0-{wanted - 1}"
            return {**done, "conditions": [_condition("SuccessCriteriaMet", step), _condition("Complete", step)]}
    conditions = [_condition("FailureTarget", step), _condition("Failed", step)]
    return {"startTime": _STARTED, "failed": 1, "ready": 0, "conditions": conditions}


def _condition(type: str, step: Object) -> Object:
    return {
        "type": type,
        "status": "True",
        "reason": step.get("reason", "Done"),
        "message": step.get("message", ""),
        "lastTransitionTime": _ENDED,
        "lastProbeTime": _ENDED,
    }


def run(runner: Runner, settle: Callable[[int], None]) -> dict[str, list[Object]]:
    """The states of each case after its creation and after each step. `settle` waits until a server has reacted."""
    points: dict[str, list[Object]] = defaultdict(list)
    runner.start()
    number = -1
    while True:
        settle(number)
        states = runner.states()
        for case in runner.cases:
            if number < len(case.steps):
                points[case.name].append(states[case.name])
        number += 1
        if not runner.step(number):
            return dict(points)


def settle_by_silence(runner: Runner, seconds: float) -> Callable[[int], None]:
    """Wait until nothing has changed for so long, and a JobSet created meanwhile got its Job."""
    client, count = runner._client, [0]

    def settle(_number: int) -> None:
        last, since = runner.states(), time.monotonic()
        marker = f"marker{count[0]}"
        count[0] += 1
        pod = {"spec": {"containers": [{"name": "main", "image": "busybox:1"}]}}
        jobset = refusals.valid()
        jobset["metadata"]["name"] = marker
        jobset["spec"]["replicatedJobs"] = [
            {"name": "a", "template": {"spec": {"managedBy": "tests.torchyard.dev/hand", "template": pod}}}
        ]
        client.post(f"{JOBSETS}/namespaces/default/jobsets", {"apiVersion": _API_VERSION, "kind": "JobSet", **jobset})
        while True:
            time.sleep(0.5)
            states = runner.states()
            exists = client.get(f"/apis/batch/v1/namespaces/default/jobs/{marker}-a-0").status == 200
            if states != last:
                last, since = states, time.monotonic()
            elif exists and time.monotonic() - since > seconds:
                return

    return settle


def refused(client: Client, namespace: str) -> Object:
    """What the server answers to each creation and update of `refusals`."""
    client.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    path = f"{JOBSETS}/namespaces/{namespace}/jobsets"
    answers: Object = {}
    for name, change in refusals.CREATIONS.items():
        body = refusals.valid()
        change(body)
        answer = client.post(path, {"apiVersion": _API_VERSION, "kind": "JobSet", **body}, query={"dryRun": "All"})
        answers[name] = [answer.status, refusal(answer.json) if answer.status >= 400 else ""]
    for name, (patch, suspended) in refusals.UPDATES.items():
        answers[f"update: {name}"] = _update(client, path, name.replace(" ", "-"), patch, suspended)
    return answers


def _update(client: Client, path: str, name: str, patch: Object, suspended: bool) -> list[Any]:
    body = refusals.valid()
    body["metadata"]["name"] = f"u-{name}"
    body["spec"] |= {"suspend": suspended, "managedBy": "example.com/nobody", "failurePolicy": {"maxRestarts": 1}}
    created = client.post(path, {"apiVersion": _API_VERSION, "kind": "JobSet", **body}).json
    jobs = patch.get("replicatedJobs")
    if jobs is not None:
        patch = {"replicatedJobs": refusals.updated_jobs(created["spec"]["replicatedJobs"], jobs)}
    answer = client.patch(f"{path}/u-{name}", {"spec": patch})
    return [answer.status, refusal(answer.json) if answer.status >= 400 else ""]
