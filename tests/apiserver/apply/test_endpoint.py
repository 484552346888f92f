"""What the endpoints of a resource do not let clients change."""

from __future__ import annotations

import pytest
from tests.apiserver.verbs.kinds import CONFIG_MAP, DEPLOYMENT, NODE, POD, WIDGET, builtin

from torchyard.api.resources import Resource
from torchyard.apiserver.apply.endpoint import endpoint_of
from torchyard.apiserver.apply.fieldset import FieldSet

RESET: list[tuple[Resource, str, FieldSet]] = [
    (CONFIG_MAP, "", {}),
    (POD, "", {"f:status": {}}),
    (WIDGET, "", {"f:status": {}}),
    (POD, "status", {"f:spec": {}, "f:metadata": {"f:deletionTimestamp": {}, "f:ownerReferences": {}}}),
    (DEPLOYMENT, "status", {"f:spec": {}, "f:metadata": {"f:labels": {}}}),
    (NODE, "status", {"f:spec": {}}),
    (WIDGET, "status", {"f:spec": {}}),
    (builtin("apiextensions.k8s.io", "v1", "customresourcedefinitions"), "status", {"f:spec": {}, "f:metadata": {}}),
]


@pytest.mark.parametrize(("resource", "subresource", "reset"), RESET)
def test_main_endpoints_reset_the_status_and_status_endpoints_the_rest(
    resource: Resource, subresource: str, reset: FieldSet
) -> None:
    endpoint = endpoint_of(resource, subresource)
    assert endpoint.reset == reset
    assert (endpoint.kind, endpoint.api_version, endpoint.subresource) == (
        resource.kind,
        resource.api_version,
        subresource,
    )
    assert endpoint_of(resource, subresource) is endpoint
