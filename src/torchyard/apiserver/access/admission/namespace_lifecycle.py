"""NamespaceLifecycle: rejects creates in missing or terminating namespaces, and deletes of system namespaces."""

from __future__ import annotations

from torchyard.api.errors import forbidden, not_found
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes

PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
EXEMPT_GROUPS = ("", "authorization.k8s.io")


def protect_system_namespaces(attributes: AdmissionAttributes) -> None:
    if attributes.is_for("namespaces", operations=("DELETE",)) and attributes.name in PROTECTED_NAMESPACES:
        raise attributes.forbidden_error("this namespace may not be deleted")


def check_namespace(attributes: AdmissionAttributes) -> None:
    namespace = attributes.namespace
    if not namespace or attributes.operation not in ("CREATE", "UPDATE"):
        return
    if attributes.resource in ("namespaces", "localsubjectaccessreviews") and attributes.group in EXEMPT_GROUPS:
        return  # a namespace is not inside itself, and access reviews are always allowed
    namespace_object = attributes.lister.get("", "namespaces", "", namespace)
    if namespace_object is None:
        raise not_found("namespaces", "", namespace)
    if attributes.operation == "CREATE" and (namespace_object.get("status") or {}).get("phase") == "Terminating":
        raise forbidden(
            attributes.resource,
            attributes.group,
            attributes.display_name,
            f"unable to create new content in namespace {namespace} because it is being terminated",
            causes=[
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ],
        )
