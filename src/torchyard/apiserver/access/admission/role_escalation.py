"""A role or binding can be written only by a user who already holds the permissions in it."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes
from torchyard.apiserver.access.escalation import check_binding, check_role
from torchyard.apiserver.access.rbac import GROUP, RESOURCES, Authorizer

# Metadata that the garbage collector changes; a write of only these fields grants nothing.
_HOUSEKEEPING = ("finalizers", "ownerReferences", "managedFields", "resourceVersion", "generation")


def check_escalation(attributes: AdmissionAttributes, authorizer: Authorizer) -> None:
    if attributes.group != GROUP or attributes.resource not in RESOURCES or attributes.subresource:
        return
    if attributes.operation not in ("CREATE", "UPDATE"):
        return
    if attributes.old is not None and _essence(attributes.old) == _essence(attributes.new):
        return
    if attributes.resource.endswith("bindings"):
        check_binding(attributes.user, attributes.resource, attributes.new, authorizer, attributes.lister)
    else:
        check_role(
            attributes.user,
            attributes.resource,
            attributes.new,
            authorizer,
            old=attributes.old,
            request_name=attributes.name,
        )


def _essence(obj: Object) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _HOUSEKEEPING}
    return {**obj, "metadata": metadata}
