"""Reasons and messages of nodes, namespaces and owner references, as kube-controller-manager writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

NODE_STATUS_UNKNOWN = ("NodeStatusUnknown", "Kubelet stopped posting node status.")
NODE_STATUS_NEVER_UPDATED = ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
NODE_NOT_READY = "NodeNotReady"

# Type, status, reason and message of the conditions of a terminating namespace that nothing went wrong in.
NAMESPACE_DISCOVERED = (
    ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
)
_NO_FINALIZERS = "All content-preserving finalizers finished"
ROOT_CA_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver"
    " when using internal endpoints such as the internal service IP or kubernetes.default.svc."
)

INVALID_OWNER_NAMESPACE = "OwnerRefInvalidNamespace"


def node_not_ready(node: str) -> str:
    return f"Node {node} status is now: NodeNotReady"


def content_failures(failures: Sequence[str]) -> tuple[str, str, str, str]:
    """Type, status, reason and message of the condition about resources that could not be deleted."""
    kind = "NamespaceDeletionContentFailure"
    if not failures:
        return kind, "False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"
    message = f"Failed to delete all resource types, {len(failures)} remaining: {', '.join(failures)}"
    return kind, "True", "ContentDeletionFailed", message


def content_remaining(remaining: Mapping[str, int]) -> tuple[str, str, str, str]:
    """Type, status, reason and message of the condition about resources that remain, by resource."""
    if not remaining:
        return "NamespaceContentRemaining", "False", "ContentRemoved", "All content successfully removed"
    content = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(remaining.items()))
    message = f"Some resources are remaining: {content}"
    return "NamespaceContentRemaining", "True", "SomeResourcesRemain", message


def finalizers_remaining(finalizers: Mapping[str, int]) -> tuple[str, str, str, str]:
    """Type, status, reason and message of the condition about finalizers that remain, by finalizer."""
    kind = "NamespaceFinalizersRemaining"
    if not finalizers:
        return kind, "False", "ContentHasNoFinalizers", _NO_FINALIZERS
    held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    message = f"Some content in the namespace has finalizers remaining: {held}"
    return kind, "True", "SomeFinalizersRemain", message


def owner_not_in_namespace(api_version: str, kind: str, namespace: str, name: str, uid: str) -> str:
    return (
        f"ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]"
        f' does not exist in namespace "{namespace}"'
    )
