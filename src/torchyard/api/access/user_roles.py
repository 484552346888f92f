"""ClusterRoles that add the kinds of definitions to the roles `view`, `edit` and `admin` by aggregation.

As with Kubeflow, users who may edit a namespace may edit its jobs. As with Kueue, they may look at queues and
workloads, which only administrators change. Cluster-scoped kinds can be read and never changed.
"""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.objects import Object
from torchyard.api.queue import names as queues

AGGREGATE_LABEL = "rbac.authorization.k8s.io/aggregate-to-"
READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
# Roles in the order in which each includes the one before.
LEVELS = ("view", "edit", "admin")
_WRITTEN_BY_ADMINS = frozenset(
    (f"{queues.LOCAL_QUEUE.plural}.{queues.GROUP}", f"{queues.WORKLOAD.plural}.{queues.GROUP}")
)
VISIBILITY_GROUP = "visibility.kueue.x-k8s.io"


def user_roles(prefix: str, definitions: Iterable[Object], *, labels: Object | None = None) -> list[Object]:
    """`<prefix>-view`, `<prefix>-edit` and, if administrators may do more, `<prefix>-admin`."""
    rules: dict[str, list[Object]] = {level: [] for level in LEVELS}
    for definition in definitions:
        for level, rule in _rules(definition):
            rules[level].append(rule)
    return [_role(f"{prefix}-{level}", level, rules[level], labels or {}) for level in LEVELS if rules[level]]


def pending_workloads_role() -> Object:
    """Who may view queues may view their pending workloads, through Kueue's visibility API."""
    plurals = (queues.CLUSTER_QUEUE.plural, queues.LOCAL_QUEUE.plural)
    rule = _rule(VISIBILITY_GROUP, [f"{plural}/pendingworkloads" for plural in plurals], ("get",))
    return _role("torchyard-pending-workloads-view", "view", [rule], {})


def metrics_role() -> Object:
    """What metrics-server installs: who may view pods may view their resource usage."""
    role = _role("system:aggregated-metrics-reader", "view", [], {})
    role["metadata"]["labels"] = {f"{AGGREGATE_LABEL}{level}": "true" for level in reversed(LEVELS)}
    return {**role, "rules": [_rule("metrics.k8s.io", ["pods", "nodes"], READ)]}


def _rules(definition: Object) -> Iterable[tuple[str, Object]]:
    """The rules of one kind, each with the least role that it belongs to."""
    spec = definition["spec"]
    group, plural = spec["group"], spec["names"]["plural"]
    subresources = {name for version in spec["versions"] for name in version.get("subresources") or ()}
    readable = [f"{plural}/{name}" for name in sorted(subresources)]
    writers = "admin" if f"{plural}.{group}" in _WRITTEN_BY_ADMINS else "edit"
    for level in ("view", *((writers,) if spec["scope"] == "Namespaced" else ())):
        # A role that allows changes is complete by itself, for those who bind it directly.
        yield level, _rule(group, [plural], READ if level == "view" else (*READ, *WRITE))
        if readable:
            yield level, _rule(group, readable, ("get",))
        if level != "view" and "scale" in subresources:
            yield level, _rule(group, [f"{plural}/scale"], ("patch", "update"))


def _rule(group: str, resources: list[str], verbs: Iterable[str]) -> Object:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


def _role(name: str, level: str, rules: list[Object], labels: Object) -> Object:
    """The default `edit` includes what aggregates to `view`, and `admin` what aggregates to `edit`."""
    metadata = {"name": name, "labels": {**labels, f"{AGGREGATE_LABEL}{level}": "true"}}
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}
