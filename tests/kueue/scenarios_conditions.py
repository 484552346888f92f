"""Conditions of workloads and queues: reasons and messages of everything that keeps a workload from being admitted."""

from __future__ import annotations

import time

from tests.kueue.harness import Object, Scenario, cpu_group, pod_set, scenario


def _queue(s: Scenario, nominal: int = 5) -> None:
    s.namespace()
    s.flavor("f")
    s.cluster_queue("q", cpu_group(nominal))


@scenario
def missing_queues_are_inadmissible(s: Scenario) -> None:
    s.namespace()
    s.workload("no-local-queue", "missing")
    s.local_queue("lonely", "missing")
    s.workload("no-cluster-queue", "lonely")
    s.observe()
    s.flavor("f")
    s.cluster_queue("missing", cpu_group(5))
    s.observe()


@scenario
def stopped_cluster_queue_holds_and_drains(s: Scenario) -> None:
    _queue(s)
    s.workload("running", "q")
    s.observe()
    s.patch("ClusterQueue", "q", {"spec": {"stopPolicy": "Hold"}})
    s.workload("waiting", "q")
    s.observe()
    s.patch("ClusterQueue", "q", {"spec": {"stopPolicy": "HoldAndDrain"}})
    s.observe()
    s.patch("ClusterQueue", "q", {"spec": {"stopPolicy": "None"}})
    s.observe()


@scenario
def stopped_local_queue_holds_and_drains(s: Scenario) -> None:
    _queue(s)
    s.workload("running", "q")
    s.observe()
    s.patch("LocalQueue", "q", {"spec": {"stopPolicy": "Hold"}}, namespace="ns")
    s.workload("waiting", "q")
    s.observe()
    s.patch("LocalQueue", "q", {"spec": {"stopPolicy": "HoldAndDrain"}}, namespace="ns")
    s.observe()
    s.patch("LocalQueue", "q", {"spec": {"stopPolicy": "None"}}, namespace="ns")
    s.observe()


@scenario
def missing_flavor_makes_the_queue_inactive(s: Scenario) -> None:
    s.namespace()
    s.cluster_queue("q", cpu_group(5))
    s.workload("w", "q")
    s.observe()
    s.flavor("f")
    s.observe()


@scenario
def missing_and_inactive_checks_make_the_queue_inactive(s: Scenario) -> None:
    s.namespace()
    s.flavor("f")
    s.cluster_queue(
        "q", cpu_group(5), admissionChecksStrategy={"admissionChecks": [{"name": s.named("a")}, {"name": s.named("b")}]}
    )
    s.workload("w", "q")
    s.observe()
    s.admission_check("a", active=False)
    s.admission_check("b")
    s.observe()
    s.set_check_active("a", active=True)
    s.observe()


@scenario
def namespace_that_does_not_match_is_pending(s: Scenario) -> None:
    s.namespace(labels={"team": "a"})
    s.flavor("f")
    s.cluster_queue("q", cpu_group(5), namespaceSelector={"matchLabels": {"team": "b"}})
    s.workload("w", "q")
    s.observe()
    s.expect(s.client.patch(f"/api/v1/namespaces/{s.named('ns')}", {"metadata": {"labels": {"team": "b"}}}))
    s.observe()


@scenario
def deactivated_workload_is_not_queued(s: Scenario) -> None:
    _queue(s)
    s.workload("waiting", "q", active=False)
    s.workload("running", "q")
    s.observe()
    s.patch("Workload", "running", {"spec": {"active": False}}, namespace="ns")
    s.observe()
    s.patch("Workload", "running", {"spec": {"active": True}}, namespace="ns")
    s.patch("Workload", "waiting", {"spec": {"active": True}}, namespace="ns")
    s.observe()


@scenario
def flavors_that_do_not_match_are_named(s: Scenario) -> None:
    s.namespace()
    s.flavor("f", nodeLabels={"zone": "a"})
    s.flavor("g", nodeTaints=[{"key": "spot", "value": "true", "effect": "NoSchedule"}])
    group, second = cpu_group(5), cpu_group(5, "g")
    s.cluster_queue("q", {**group, "flavors": [*group["flavors"], *second["flavors"]]})
    s.workload("w", "q", pod_set(cpu=1, nodeSelector={"zone": "b"}))
    s.workload("gpu", "q", pod_set(containers=[{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]))
    s.observe()


@scenario
def admission_gate_keeps_a_workload_pending(s: Scenario) -> None:
    _queue(s)
    gated = {"annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/one,example.com/two"}}
    s.workload("gated", "q", metadata=gated)
    s.workload("free", "q")
    s.observe()
    s.patch(
        "Workload", "gated", {"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": None}}}, namespace="ns"
    )
    s.observe()


@scenario
def checks_by_flavor_follow_the_cluster_queue(s: Scenario) -> None:
    s.namespace()
    s.flavor("f")
    for name in ("a", "b"):
        s.admission_check(name)
    rules = [{"name": s.named("a"), "onFlavors": [s.named("f")]}]
    s.cluster_queue("q", cpu_group(5), admissionChecksStrategy={"admissionChecks": rules})
    s.workload("w", "q")
    s.observe()
    rules.append({"name": s.named("b")})
    s.patch("ClusterQueue", "q", {"spec": {"admissionChecksStrategy": {"admissionChecks": rules}}})
    s.observe()
    s.patch("ClusterQueue", "q", {"spec": {"admissionChecksStrategy": {"admissionChecks": rules[1:]}}})
    s.observe()


@scenario
def checks_added_to_a_queue_with_admitted_workloads(s: Scenario) -> None:
    _queue(s)
    s.admission_check("a")
    s.workload("running", "q")
    s.observe()
    s.patch("ClusterQueue", "q", {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": s.named("a")}]}}})
    s.workload("waiting", "q")
    s.observe()
    state = {"name": s.named("a"), "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    s.patch_workload_status("waiting", {"admissionChecks": [state]})
    s.observe()
    s.patch_workload_status("waiting", {"admissionChecks": [{**state, "state": "Retry"}]})
    s.observe()


@scenario
def rejected_check_deactivates_the_workload(s: Scenario) -> None:
    s.namespace()
    s.flavor("f")
    s.admission_check("a")
    s.cluster_queue("q", cpu_group(5), admissionChecksStrategy={"admissionChecks": [{"name": s.named("a")}]})
    s.workload("w", "q")
    s.observe()
    state = {"name": s.named("a"), "state": "Rejected", "message": "no", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    s.patch_workload_status("w", {"admissionChecks": [state]})
    s.observe()


def _check_state(s: Scenario, name: str, state: str) -> Object:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"name": s.named(name), "state": state, "message": "By test", "lastTransitionTime": now}


@scenario
def retried_check_puts_a_workload_behind_others(s: Scenario) -> None:
    s.namespace()
    s.flavor("f")
    s.admission_check("c")
    checks = {"admissionChecks": [{"name": s.named("c")}]}
    s.cluster_queue("q", cpu_group(1), admissionChecksStrategy=checks)
    for name in ("retried", "first"):  # in the order of their names if the retry is in the second of the creation
        s.workload(name, "q")
    s.observe()
    s.patch_workload_status("retried", {"admissionChecks": [_check_state(s, "c", "Retry")]})
    s.observe()
    s.patch_workload_status("first", {"admissionChecks": [_check_state(s, "c", "Ready")]})
    s.observe()
    s.finish("first")
    s.observe()


@scenario
def deleted_cluster_queue_stays_until_its_workloads_end(s: Scenario) -> None:
    _queue(s)
    s.workload("running", "q")
    s.observe()
    s.delete("ClusterQueue", "q")
    s.workload("late", "q")
    s.observe()
    s.delete("Workload", "late", "ns")
    s.finish("running")
    s.observe()


@scenario
def deleted_flavor_stays_while_a_queue_uses_it(s: Scenario) -> None:
    _queue(s)
    s.delete("ResourceFlavor", "f")
    s.workload("w", "q")
    s.observe()
    s.results.append({"flavor": s.get("ResourceFlavor", "f") is not None})
    s.finish("w")
    s.delete("ClusterQueue", "q")
    s.observe()
    s.results.append({"flavor": s.get("ResourceFlavor", "f") is not None})


@scenario
def deleted_check_stays_while_a_queue_uses_it(s: Scenario) -> None:
    s.namespace()
    s.flavor("f")
    s.admission_check("a")
    s.cluster_queue("q", cpu_group(5), admissionChecksStrategy={"admissionChecks": [{"name": s.named("a")}]})
    s.observe()
    s.delete("AdmissionCheck", "a")
    s.observe()
    check = s.get("AdmissionCheck", "a")
    s.results.append({"finalizers": None if check is None else check["metadata"].get("finalizers")})
    s.delete("ClusterQueue", "q")
    s.observe()
    s.results.append({"check": s.get("AdmissionCheck", "a") is not None})


@scenario
def deleted_local_queue_and_cohort_disappear(s: Scenario) -> None:
    s.namespace()
    s.flavor("f")
    s.cohort("root", groups=[cpu_group(5)])
    s.cluster_queue("q", cpu_group(1), cohort="root")
    s.workload("running", "q", cpu=3)
    s.observe()
    s.delete("LocalQueue", "q", "ns")
    s.delete("Cohort", "root")
    s.observe()
    s.results.append(
        {"cohort": s.get("Cohort", "root") is not None, "queue": s.get("LocalQueue", "q", "ns") is not None}
    )


@scenario
def created_objects_have_finalizers(s: Scenario) -> None:
    _queue(s)
    s.cohort("root")
    s.admission_check("a")
    s.cluster_queue(
        "p", cpu_group(1), cohort="root", admissionChecksStrategy={"admissionChecks": [{"name": s.named("a")}]}
    )
    s.workload("w", "q")
    s.observe()
    for kind, name, namespace in (
        ("ClusterQueue", "q", ""),
        ("ResourceFlavor", "f", ""),
        ("Cohort", "root", ""),
        ("AdmissionCheck", "a", ""),
        ("LocalQueue", "q", "ns"),
        ("Workload", "w", "ns"),
    ):
        obj = s.get(kind, name, namespace)
        s.results.append({"kind": kind, "finalizers": None if obj is None else obj["metadata"].get("finalizers")})
