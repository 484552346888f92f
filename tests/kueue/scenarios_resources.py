"""What a workload counts as using, and which workloads get no quota because their pods could not be created."""

from __future__ import annotations

from tests.kueue.harness import Scenario, container, cpu_group, group, pod_set, quota, scenario


def _queue(s: Scenario, nominal: int = 5) -> None:
    s.namespace()
    s.flavor("f")
    s.cluster_queue("q", cpu_group(nominal))


@scenario
def limits_count_as_requests(s: Scenario) -> None:
    _queue(s)
    s.workload("limits", "q", pod_set(count=2, containers=[container(limits={"cpu": "2"})]))
    s.workload("second", "q", pod_set(containers=[container(limits={"cpu": "2"})]))
    s.observe()


@scenario
def init_containers_and_sidecars_count(s: Scenario) -> None:
    _queue(s, 10)
    sidecar = {**container(limits={"cpu": "1"}), "name": "side", "restartPolicy": "Always"}
    init = {**container(limits={"cpu": "3"}), "name": "init"}
    s.workload("w", "q", pod_set(initContainers=[sidecar, init], containers=[container(requests={"cpu": "2"})]))
    s.observe()


@scenario
def pod_level_resources_count(s: Scenario) -> None:
    _queue(s)
    s.workload(
        "requests", "q", pod_set(resources={"requests": {"cpu": "3"}}, containers=[container(requests={"cpu": "1"})])
    )
    s.workload("limits", "q", pod_set(resources={"limits": {"cpu": "2"}}, containers=[container()]))
    s.workload("third", "q", pod_set(resources={"limits": {"cpu": "1"}}, containers=[container()]))
    s.observe()


@scenario
def limit_range_defaults_count(s: Scenario) -> None:
    _queue(s)
    s.limit_range("defaults", {"type": "Container", "defaultRequest": {"cpu": "2"}, "default": {"cpu": "4"}})
    s.workload("bare", "q", pod_set(containers=[container()]))
    s.workload("own", "q", pod_set(containers=[container(requests={"cpu": "1"})]))
    s.workload("limit", "q", pod_set(containers=[container(limits={"cpu": "3"})]))
    s.observe()


@scenario
def pod_limit_range_defaults_apply_to_pod_level_resources(s: Scenario) -> None:
    _queue(s)
    s.flavor("m")
    s.cluster_queue("memory", group(("m", [quota("memory", "4Gi")])))
    s.limit_range("container", {"type": "Container", "default": {"memory": "1Gi"}})
    s.workload("bare", "memory", pod_set(containers=[container()]))
    s.workload(
        "pod-level",
        "memory",
        pod_set(resources={"requests": {"memory": "2Gi"}}, containers=[container(), {**container(), "name": "d"}]),
    )
    s.observe()


@scenario
def runtime_class_overhead_counts(s: Scenario) -> None:
    _queue(s)
    s.runtime_class("sandbox", {"cpu": "1"})
    s.workload("first", "q", pod_set(count=2, cpu=1, runtimeClassName=s.named("sandbox")))
    s.workload("second", "q", pod_set(cpu=1, runtimeClassName=s.named("sandbox")))
    s.observe()
    s.workload("unknown", "q", pod_set(cpu=1, runtimeClassName=s.named("missing")))
    s.observe()


@scenario
def changed_limit_range_is_used_for_pending_workloads(s: Scenario) -> None:
    _queue(s, 3)
    s.limit_range("defaults", {"type": "Container", "defaultRequest": {"cpu": "4"}, "default": {"cpu": "4"}})
    s.workload("w", "q", pod_set(containers=[container()]))
    s.observe()
    s.limit_range("defaults", {"type": "Container", "defaultRequest": {"cpu": "2"}, "default": {"cpu": "4"}})
    s.observe()


@scenario
def deleted_limit_range_is_used_for_pending_workloads(s: Scenario) -> None:
    _queue(s, 3)
    s.limit_range("max", {"type": "Container", "max": {"cpu": "1"}})
    s.workload("w", "q", pod_set(cpu=2))
    s.observe()
    s.delete_limit_range("max")
    s.observe()


@scenario
def changed_runtime_class_is_used_for_pending_workloads(s: Scenario) -> None:
    _queue(s, 3)
    s.runtime_class("sandbox", {"cpu": "3"})
    s.workload("w", "q", pod_set(cpu=1, runtimeClassName=s.named("sandbox")))
    s.observe()
    s.runtime_class("sandbox", {"cpu": "1"})
    s.observe()


@scenario
def requests_above_limits_get_no_quota(s: Scenario) -> None:
    _queue(s, 10)
    s.workload("container", "q", pod_set(containers=[container(requests={"cpu": "3"}, limits={"cpu": "2"})]))
    two = {"cpu": "3", "memory": "2Gi"}
    s.workload(
        "both",
        "q",
        pod_set(
            initContainers=[{**container(requests=two, limits={"cpu": "2", "memory": "1Gi"}), "name": "init"}],
            containers=[container(requests={"cpu": "3"}, limits={"cpu": "2"})],
        ),
    )
    s.workload(
        "pod-level",
        "q",
        pod_set(resources={"requests": {"cpu": "3"}, "limits": {"cpu": "2"}}, containers=[container()]),
    )
    s.workload("valid", "q", cpu=2)
    s.observe()


@scenario
def requests_outside_a_limit_range_get_no_quota(s: Scenario) -> None:
    _queue(s, 20)
    s.limit_range(
        "bounds",
        {"type": "Container", "max": {"cpu": "4"}, "min": {"cpu": "1"}},
        {"type": "Pod", "max": {"cpu": "5"}, "min": {"cpu": "2"}},
    )
    s.workload("container-max", "q", cpu="4500m")
    s.workload("container-min", "q", cpu="500m")
    three = [{**container(requests={"cpu": "2"}), "name": f"c{index}"} for index in range(3)]
    s.workload("pod-max", "q", pod_set(containers=three))
    s.workload("pod-min", "q", cpu=1)
    s.workload("limit", "q", pod_set(containers=[container(requests={"cpu": "2"}, limits={"cpu": "6"})]))
    s.workload("second-set", "q", pod_set("a", cpu=2), pod_set("b", cpu=1))
    s.workload("valid", "q", cpu=3)
    s.observe()


@scenario
def several_limit_ranges_add_up(s: Scenario) -> None:
    _queue(s, 20)
    s.limit_range("a", {"type": "Container", "max": {"cpu": "4"}})
    s.limit_range("b", {"type": "Container", "max": {"cpu": "3"}})
    s.workload("w", "q", cpu="3500m")
    s.workload("valid", "q", cpu=3)
    s.observe()


@scenario
def invalid_head_of_a_strict_queue_blocks_it(s: Scenario) -> None:
    s.namespace()
    s.flavor("f")
    s.cluster_queue("q", cpu_group(5), queueingStrategy="StrictFIFO")
    s.workload("invalid", "q", pod_set(containers=[container(requests={"cpu": "3"}, limits={"cpu": "2"})]))
    s.workload("valid", "q", cpu=1)
    s.observe()
