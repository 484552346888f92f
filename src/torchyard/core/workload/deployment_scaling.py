"""How large the ReplicaSets of a Deployment should be: during a rollout, and after it was scaled."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.workload import labels
from torchyard.core.workload.deployment_view import (
    DeploymentView,
    active,
    by_creation,
    count,
    number,
    size,
    total_size,
)

Sizes = dict[str, int]  # by the name of a ReplicaSet


def was_scaled(view: DeploymentView, all_sets: list[Object]) -> bool:
    """Whether replicas changed since the ReplicaSets were scaled."""
    desired = (number(replica_set, labels.DESIRED_REPLICAS) for replica_set in active(all_sets))
    return any(wanted is not None and wanted != view.replicas for wanted in desired)


def scale_sizes(view: DeploymentView, new: Object | None, old: list[Object]) -> Sizes:
    """After replicas changed, or while paused. In the middle of a rollout every ReplicaSet gets its share."""
    single = _active_or_latest(new, old)
    if single is not None:
        return {} if size(single) == view.replicas else {single["metadata"]["name"]: view.replicas}
    if new is not None and _is_saturated(view, new):
        return {old_set["metadata"]["name"]: 0 for old_set in active(old)}
    return _proportional(view, active([*old, new])) if view.is_rolling else {}


def _active_or_latest(new: Object | None, old: list[Object]) -> Object | None:
    working = active([*old, new])
    if len(working) == 1:
        return working[0]
    if working:
        return None
    return new or max(old, key=by_creation, default=None)


def _is_saturated(view: DeploymentView, replica_set: Object) -> bool:
    """Whether a ReplicaSet alone is what the Deployment wants, available."""
    sizes = size(replica_set), number(replica_set, labels.DESIRED_REPLICAS), count(replica_set, "availableReplicas")
    return all(value == view.replicas for value in sizes)


def _proportional(view: DeploymentView, sets: list[Object]) -> Sizes:
    allowed = view.replicas + view.max_surge if view.replicas else 0
    to_add = allowed - total_size(sets)
    # The largest first; of equal ones the newest when pods are added, and the oldest when they are removed.
    ordered = sorted(sets, key=by_creation, reverse=to_add > 0)
    ordered.sort(key=size, reverse=True)
    sizes, added = {}, 0
    for replica_set in ordered:
        share = _share(view, replica_set, to_add, added)
        sizes[replica_set["metadata"]["name"]] = size(replica_set) + share
        added += share
    if ordered and to_add:
        largest = ordered[0]["metadata"]["name"]
        sizes[largest] = max(sizes[largest] + to_add - added, 0)
    return sizes


def _share(view: DeploymentView, replica_set: Object, to_add: int, added: int) -> int:
    if not size(replica_set) or not to_add or to_add == added:
        return 0
    fraction = _fraction(view, replica_set)
    return min(fraction, to_add - added) if to_add > 0 else max(fraction, to_add - added)


def _fraction(view: DeploymentView, replica_set: Object) -> int:
    """By how much a ReplicaSet would change if it kept its part of the whole."""
    if not view.replicas:
        return -size(replica_set)
    before = number(replica_set, labels.MAX_REPLICAS) or view.status.get("replicas") or 0
    if not before:
        return 0
    # rounded half up, as upstream; Python rounds half to even
    return int(size(replica_set) * (view.replicas + view.max_surge) / before + 0.5) - size(replica_set)


def rolling_sizes(view: DeploymentView, new: Object, old: list[Object]) -> Sizes:
    """How far the old ReplicaSets may shrink now: unhealthy pods first, then as many as may be unavailable."""
    working = sorted(active(old), key=by_creation)
    minimum = view.replicas - view.max_unavailable
    not_available = size(new) - count(new, "availableReplicas")
    budget = total_size([*old, new]) - minimum - not_available
    if not working or budget <= 0:
        return {}
    if any(count(old_set, "availableReplicas") > size(old_set) for old_set in working):
        return {}  # it was scaled down a moment ago: its status, which is behind, would allow too much
    sizes = {old_set["metadata"]["name"]: size(old_set) for old_set in working}
    for old_set in working:
        removed = min(budget, size(old_set) - count(old_set, "availableReplicas"))
        if removed > 0:
            sizes[old_set["metadata"]["name"]] -= removed
            budget -= removed
    surplus = sum(count(replica_set, "availableReplicas") for replica_set in [*working, new]) - minimum
    for old_set in working:
        if surplus <= 0:
            break
        name = old_set["metadata"]["name"]
        removed = min(sizes[name], surplus)
        sizes[name] -= removed
        surplus -= removed
    return sizes
