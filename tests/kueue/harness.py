"""Scenarios of queues that run on any server, the plane or a real Kubernetes with Kueue, and what can be seen there.

The names of a scenario's objects get a prefix, so that many scenarios share one server; observations are without it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from tests.support.http import Answer, Client

Object = dict[str, Any]
Observation = dict[str, Any]

_API = "/apis/kueue.x-k8s.io/v1beta2"
_VERSION = "kueue.x-k8s.io/v1beta2"
_PLURALS = {
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "ResourceFlavor": "resourceflavors",
    "AdmissionCheck": "admissionchecks",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "LocalQueue": "localqueues",
    "Workload": "workloads",
}
_OBSERVED_CONDITIONS = ("QuotaReserved", "Admitted", "Evicted", "Preempted", "Finished")
_QUIET = 1.6  # seconds without a change after which nothing more is expected
_QUIET_AS_EXPECTED = 0.5
_QUIET_UNEXPECTED = 8.0  # a machine under load may be slow
_POLL = 0.2
_LIMIT = 60.0
_uid = re.compile(r"(UID): [0-9a-f-]{36}")
_missing = re.compile(r", [0-9][0-9a-zA-Z.]* more needed")


class Scenario:
    """One scenario on one server. `results` has what was observed at each call of `observe`.

    `has_pending_reasons`: whether it is observed why workloads are pending. Kueue says it of one of several with equal
    pods.
    """

    has_pending_reasons = True

    def __init__(self, client: Client, prefix: str, expected: list[Observation] | None = None) -> None:
        """`expected`: what another server showed. An observation that is the same need not wait for long."""
        self.client, self.prefix, self._expected = client, prefix, expected
        self.results: list[Observation] = []
        self._workloads: list[tuple[str, str]] = []
        self._queues: list[str] = []
        self._namespaces: list[str] = []
        self._hold: set[str] = set()
        self._next_second = 0.0

    # Objects. Names are as the scenario writes them; the prefix is added here.

    def named(self, name: str) -> str:
        return f"{self.prefix}{name}" if name else ""

    def namespace(self, name: str = "ns", labels: Mapping[str, str] | None = None) -> str:
        self._namespaces.append(name)
        metadata = {"name": self.named(name), "labels": dict(labels or {})}
        self.expect(self.client.post("/api/v1/namespaces", _core("v1", "Namespace", metadata)))
        return name

    def limit_range(self, name: str, *limits: Object, namespace: str = "ns") -> None:
        body = {**_core("v1", "LimitRange", {"name": name}), "spec": {"limits": list(limits)}}
        path = f"/api/v1/namespaces/{self.named(namespace)}/limitranges"
        answer = self.client.post(path, body)
        if answer.status == 409:
            answer = self.client.patch(f"{path}/{name}", {"spec": body["spec"]})
        self.expect(answer)

    def delete_limit_range(self, name: str, namespace: str = "ns") -> None:
        self.expect(self.client.delete(f"/api/v1/namespaces/{self.named(namespace)}/limitranges/{name}"))

    def runtime_class(self, name: str, overhead: Mapping[str, str]) -> None:
        path, prefixed = "/apis/node.k8s.io/v1/runtimeclasses", self.named(name)
        body = {
            **_core("node.k8s.io/v1", "RuntimeClass", {"name": prefixed}),
            "handler": "runc",
            "overhead": {"podFixed": dict(overhead)},
        }
        answer = self.client.post(path, body)
        if answer.status == 409:
            answer = self.client.patch(f"{path}/{prefixed}", {"overhead": body["overhead"]})
        self.expect(answer)

    def flavor(self, name: str, **spec: Any) -> None:
        self.create("ResourceFlavor", {"metadata": {"name": self.named(name)}, "spec": spec})

    def cohort(self, name: str, parent: str = "", groups: Iterable[Object] = (), **spec: Any) -> None:
        body: Object = {**spec, "resourceGroups": self.prefixed(groups)}
        if parent:
            body["parentName"] = self.named(parent)
        self.create("Cohort", {"metadata": {"name": self.named(name)}, "spec": body})

    def cluster_queue(
        self, name: str, *groups: Object, cohort: str = "", local_queue: str | None = None, **spec: Any
    ) -> None:
        """With a LocalQueue of the same name in the namespace `ns`, unless `local_queue` is empty."""
        body: Object = {"namespaceSelector": {}, "resourceGroups": self.prefixed(groups), **spec}
        if cohort:
            body["cohortName"] = self.named(cohort)
        self._queues.append(name)
        self.create("ClusterQueue", {"metadata": {"name": self.named(name)}, "spec": body})
        if local_queue != "":
            self.local_queue(local_queue or name, name)

    def local_queue(self, name: str, cluster_queue: str, namespace: str = "ns", **spec: Any) -> None:
        body = {
            "metadata": {"name": name, "namespace": self.named(namespace)},
            "spec": {"clusterQueue": self.named(cluster_queue), **spec},
        }
        self.create("LocalQueue", body)

    def workload(
        self,
        name: str,
        queue: str,
        *pod_sets: Object,
        cpu: str | int = 1,
        priority: int = 0,
        namespace: str = "ns",
        metadata: Object | None = None,
        **spec: Any,
    ) -> None:
        """Creation times have whole seconds and decide the order, so each workload is created in another second."""
        time.sleep(max(0.0, self._next_second - time.time()))
        self._next_second = int(time.time()) + 1.02
        body = {
            "metadata": {"name": name, "namespace": self.named(namespace), **(metadata or {})},
            "spec": {
                "queueName": queue,
                "priority": priority,
                "podSets": list(pod_sets) or [pod_set(cpu=cpu)],
                **spec,
            },
        }
        self._workloads.append((namespace, name))
        self.create("Workload", body)

    def create(self, kind: str, obj: Object) -> Answer:
        answer = self.client.post(self._path(kind, obj["metadata"].get("namespace", "")), _full(kind, obj))
        self.expect(answer)
        return answer

    def patch(self, kind: str, name: str, patch: Object, *, namespace: str = "", subresource: str = "") -> None:
        self.expect(self.client.patch(self.path(kind, name, namespace, subresource), patch))

    def admission_check(self, name: str, *, active: bool = True) -> None:
        self.create("AdmissionCheck", {"metadata": {"name": self.named(name)}, "spec": {"controllerName": "test/test"}})
        self.set_check_active(name, active=active)

    def set_check_active(self, name: str, *, active: bool) -> None:
        active_condition = condition("Active", str(active), "ByTest", "By test")
        self.patch("AdmissionCheck", name, {"status": {"conditions": [active_condition]}}, subresource="status")

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        self.expect(self.client.delete(self.path(kind, name, namespace)))

    def patch_workload_status(self, name: str, status: Object, namespace: str = "ns") -> None:
        self.patch("Workload", name, {"status": status}, namespace=namespace, subresource="status")

    def finish(self, name: str, namespace: str = "ns") -> None:
        """Declare a workload finished."""
        self.set_conditions(name, namespace, condition("Finished", "True", "JobFinished", "By test"))

    def hold_eviction(self, name: str) -> None:
        """Do not release the quota of this workload when it is evicted, until `release_eviction`."""
        self._hold.add(name)

    def release_eviction(self, name: str) -> None:
        self._hold.discard(name)

    # Observations.

    def observe(self, *, quiet: float = _QUIET) -> Observation:
        """Wait until nothing changes any more, and record what is there."""
        deadline = time.monotonic() + _LIMIT
        last, since = self._snapshot(), time.monotonic()
        while time.monotonic() - since < self._wait_for(last, quiet):
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.prefix} does not become quiet: {json.dumps(last)}")
            time.sleep(_POLL)
            self._finish_evictions()
            current = self._snapshot()
            if current != last:
                last, since = current, time.monotonic()
        self.results.append(last)
        return last

    def _wait_for(self, observation: Observation, quiet: float) -> float:
        if self._expected is None:
            return quiet
        position = len(self.results)
        is_expected = position < len(self._expected) and observation == self._expected[position]
        return _QUIET_AS_EXPECTED if is_expected else _QUIET_UNEXPECTED

    def answer(self, answer: Answer) -> None:
        """Record whether a request succeeded, and otherwise the reason with its message."""
        error = {} if answer.status < 400 else {"reason": answer.reason, "message": self.plain(answer.message)}
        self.results.append({"status": answer.status, **error})

    def _snapshot(self) -> Observation:
        workloads = {name: self._workload(namespace, name) for namespace, name in self._workloads}
        queues = {name: self._queue(name) for name in self._queues}
        text = json.dumps({"workloads": workloads, "queues": queues}, sort_keys=True)
        observation: Observation = json.loads(self.plain(text))
        return observation

    def plain(self, text: str) -> str:
        """Without the prefix, without uids, and without how much is missing: that may be out of date."""
        return _missing.sub(", ? more needed", _uid.sub(r"\1: ?", text.replace(self.prefix, "")))

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        answer = self.client.get(self.path(kind, name, namespace))
        if answer.status == 404:
            return None
        self.expect(answer)
        obj: Object = answer.json
        return obj

    def _workload(self, namespace: str, name: str) -> Observation | None:
        obj = self.get("Workload", name, namespace)
        if obj is None:
            return None
        status = obj.get("status") or {}
        seen: Observation = {}
        for entry in status.get("conditions") or ():
            is_reason = entry["type"] == "QuotaReserved" and entry["status"] == "False"
            if entry["type"] in _OBSERVED_CONDITIONS and (self.has_pending_reasons or not is_reason):
                seen[entry["type"]] = [entry["status"], entry["reason"], entry["message"]]
        admission = status.get("admission")
        if admission:
            seen["admission"] = {
                "clusterQueue": admission["clusterQueue"],
                "podSets": [
                    [entry.get("name"), entry.get("count"), entry.get("flavors"), entry.get("resourceUsage")]
                    for entry in admission.get("podSetAssignments") or ()
                ],
            }
        if status.get("admissionChecks"):
            seen["checks"] = sorted([check["name"], check["state"]] for check in status["admissionChecks"])
        return seen

    def _queue(self, name: str) -> Observation | None:
        obj = self.get("ClusterQueue", name)
        if obj is None:
            return None
        status = obj.get("status") or {}
        active = next((entry for entry in status.get("conditions") or () if entry["type"] == "Active"), None)
        return {
            "active": [active["status"], active["reason"], active["message"]] if active else None,
            "counts": [status.get(f"{kind}Workloads", 0) for kind in ("pending", "reserving", "admitted")],
            "reservation": {
                f"{flavor['name']}/{resource['name']}": [resource.get("total", "0"), resource.get("borrowed", "0")]
                for flavor in status.get("flavorsReservation") or ()
                for resource in flavor["resources"]
            },
        }

    def _finish_evictions(self) -> None:
        """Release the quota of evicted workloads without a job, as their controller would."""
        for namespace, name in self._workloads:
            obj = self.get("Workload", name, namespace)
            if obj is None or name in self._hold:
                continue
            conditions = {entry["type"]: entry for entry in (obj.get("status") or {}).get("conditions") or ()}
            if _is_true(conditions, "Evicted") and _is_true(conditions, "QuotaReserved"):
                message = conditions["Evicted"]["message"]
                changed = [condition("QuotaReserved", "False", "Pending", message)]
                if "Admitted" in conditions:
                    changed.append(condition("Admitted", "False", "NoReservation", "The workload has no reservation"))
                self.set_conditions(name, namespace, *changed, admission=None)

    def set_conditions(self, name: str, namespace: str, *changed: Object, **status: Any) -> None:
        for _ in range(20):
            obj = self.get("Workload", name, namespace)
            if obj is None:
                return
            conditions = {entry["type"]: entry for entry in (obj.get("status") or {}).get("conditions") or ()}
            conditions |= {entry["type"]: entry for entry in changed}
            patch = {
                "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
                "status": {"conditions": list(conditions.values()), **status},
            }
            answer = self.client.patch(self.path("Workload", name, namespace, "status"), patch)
            if answer.status != 409:
                self.expect(answer)
                return
        raise AssertionError(f"{name} changes all the time")

    # Paths.

    def path(self, kind: str, name: str, namespace: str = "", subresource: str = "") -> str:
        prefixed = name if namespace else self.named(name)
        path = f"{self._path(kind, self.named(namespace))}/{prefixed}"
        return f"{path}/{subresource}" if subresource else path

    def _path(self, kind: str, namespace: str) -> str:
        return f"{_API}/namespaces/{namespace}/{_PLURALS[kind]}" if namespace else f"{_API}/{_PLURALS[kind]}"

    def prefixed(self, groups: Iterable[Object]) -> list[Object]:
        return [
            {**group, "flavors": [{**flavor, "name": self.named(flavor["name"])} for flavor in group["flavors"]]}
            for group in groups
        ]

    def expect(self, answer: Answer) -> None:
        if answer.status >= 400:
            raise AssertionError(f"{self.prefix}: {answer}")


def condition(type: str, status: str, reason: str, message: str) -> Object:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}


def quota(resource: str, nominal: str | int, **limits: str | int) -> Object:
    return {"name": resource, "nominalQuota": str(nominal), **{key: str(value) for key, value in limits.items()}}


def group(*flavors: tuple[str, list[Object]]) -> Object:
    covered = [resource["name"] for resource in flavors[0][1]]
    return {"coveredResources": covered, "flavors": [{"name": name, "resources": quotas} for name, quotas in flavors]}


def cpu_group(nominal: str | int, flavor: str = "f", **limits: str | int) -> Object:
    return group((flavor, [quota("cpu", nominal, **limits)]))


def pod_set(name: str = "main", *, count: int = 1, cpu: str | int | None = None, **pod: Any) -> Object:
    """`pod`: fields of its spec; `containers` replaces the one that requests `cpu`."""
    resources = {"requests": {"cpu": str(cpu)}} if cpu is not None else {}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}], "restartPolicy": "Never", **pod}
    return {"name": name, "count": count, "template": {"spec": spec}}


def container(**resources: Any) -> Object:
    return {"name": "c", "image": "i", "resources": resources}


def _core(version: str, kind: str, metadata: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _full(kind: str, obj: Object) -> Object:
    return {"apiVersion": _VERSION, "kind": kind, **obj}


def _is_true(conditions: Mapping[str, Object], type: str) -> bool:
    return type in conditions and conditions[type]["status"] == "True"


Script = Callable[[Any], None]
_Script = TypeVar("_Script", bound=Script)


class RegisteredScenario(NamedTuple):
    script: Script
    scenario_class: type[Scenario]


SCRIPTS: dict[str, RegisteredScenario] = {}


def scenario_of(scenario_class: type[Scenario]) -> Callable[[_Script], _Script]:
    """Register a scenario under its name; it gets an object of this class."""

    def register(script: _Script) -> _Script:
        SCRIPTS[script.__name__] = RegisteredScenario(script, scenario_class)
        return script

    return register


scenario = scenario_of(Scenario)
