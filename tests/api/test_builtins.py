"""The built-in resources."""

from __future__ import annotations

from torchyard.api.builtins import builtin_resources
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.resources import Resource

# upstream's strategies whose AllowUnconditionalUpdate is false
CONDITIONAL = {
    *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
    *("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
    *("apiservices", "leases", "runtimeclasses", "poddisruptionbudgets"),
    *("csidrivers", "csinodes", "csistoragecapacities", "volumeattachments"),
}


def find(group: str, version: str, plural: str) -> Resource:
    matching = [
        resource
        for resource in builtin_resources()
        if (resource.group, resource.version, resource.plural) == (group, version, plural)
    ]
    assert len(matching) == 1
    return matching[0]


def test_every_resource_has_a_type() -> None:
    assert [resource.plural for resource in builtin_resources() if resource.type is None] == []


def test_a_resource_has_the_fields_of_discovery() -> None:
    jobs = find("batch", "v1", "jobs")
    assert (jobs.kind, jobs.singular, jobs.namespaced, jobs.categories) == ("Job", "job", True, ("all",))
    assert jobs.verbs == ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    assert find("", "v1", "pods").short_names == ("po",)
    assert not find("", "v1", "nodes").namespaced


def test_a_resource_has_its_subresources() -> None:
    deployments = find("apps", "v1", "deployments")
    assert set(deployments.subresources) == {"scale", "status"}
    assert deployments.subresources["scale"].gvk == GroupVersionKind("autoscaling", "v1", "Scale")
    assert deployments.subresources["status"].gvk == deployments.gvk
    assert find("", "v1", "pods").subresources["eviction"].gvk == GroupVersionKind("policy", "v1", "Eviction")


def test_events_of_both_groups_share_their_storage() -> None:
    event = find("events.k8s.io", "v1", "events")
    assert (event.storage_group, event.storage_version) == ("", "v1")


def test_autoscalers_of_both_versions_are_stored_as_v2() -> None:
    for version in ("v1", "v2"):
        autoscaler = find("autoscaling", version, "horizontalpodautoscalers")
        assert (autoscaler.storage_group, autoscaler.storage_version) == ("autoscaling", "v2")


def test_metrics_resources_are_read_only() -> None:
    assert find("metrics.k8s.io", "v1beta1", "pods").verbs == ("get", "list")


def test_the_kinds_whose_updates_need_a_resource_version_are_those_of_upstream() -> None:
    conditional = {resource.plural for resource in builtin_resources() if not resource.strategy.unconditional_update}
    assert conditional == CONDITIONAL
