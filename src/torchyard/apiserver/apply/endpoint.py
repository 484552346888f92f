"""The endpoint of a write for managed fields: its kind, version, subresource, and the fields it resets."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from torchyard.api.resources import Resource
from torchyard.api.schema.types import Type
from torchyard.apiserver.apply.fieldset import FieldSet, of_paths
from torchyard.apiserver.apply.values import ANY

_SPEC, _STATUS, _METADATA = ("f:spec",), ("f:status",), ("f:metadata",)

# The fields that `status` endpoints reset besides the spec.
_RESET_WITH_STATUS = {
    ("", "pods"): (("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:ownerReferences")),
    ("apps", "deployments"): (("f:metadata", "f:labels"),),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): (_METADATA,),
    ("apiextensions.k8s.io", "customresourcedefinitions"): (_METADATA,),
    ("apiregistration.k8s.io", "apiservices"): (_METADATA,),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): (_METADATA,),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): (_METADATA,),
    ("storage.k8s.io", "volumeattachments"): (_METADATA,),
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    type: Type
    kind: str
    api_version: str
    subresource: str = ""
    # Fields that clients cannot change through this endpoint, and therefore do not own.
    reset: FieldSet = field(default_factory=dict)


# Bounded, because custom resources are created and deleted.
@lru_cache(maxsize=1024)
def endpoint_of(resource: Resource, subresource: str = "") -> Endpoint:
    """The endpoint of a resource or of one of its subresources."""
    return Endpoint(
        resource.type or ANY, resource.kind, resource.api_version, subresource, _reset_fields(resource, subresource)
    )


def _reset_fields(resource: Resource, subresource: str) -> FieldSet:
    if subresource == "status":
        return of_paths(_SPEC, *_RESET_WITH_STATUS.get((resource.group, resource.plural), ()))
    return of_paths(_STATUS) if "status" in resource.subresources else {}
