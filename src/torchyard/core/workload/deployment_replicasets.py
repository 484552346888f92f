"""The ReplicaSets of a Deployment: a new one for a new template, revisions and the annotations that carry them."""

from __future__ import annotations

from torchyard.api.gvr import DEPLOYMENTS
from torchyard.api.metadata import controller_reference, is_terminating
from torchyard.api.objects import Object
from torchyard.api.workload import labels
from torchyard.core.workload.deployment_view import (
    DeploymentView,
    annotation,
    count,
    number,
    revision,
    size,
    total_size,
)
from torchyard.core.workload.hashes import template_hash

# The longest annotation of earlier revisions, in characters.
_HISTORY_LENGTH = 2000


def make_replica_set(view: DeploymentView, old: list[Object]) -> Object:
    """The ReplicaSet for the present template, as large as the strategy allows."""
    deployment, spec = view.deployment, view.spec
    template = spec["template"]
    hash_ = template_hash(template, view.status.get("collisionCount"))
    own_labels = {**((template.get("metadata") or {}).get("labels") or {}), labels.POD_TEMPLATE_HASH: hash_}
    selector = spec["selector"]
    replica_set: Object = {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{view.name}-{hash_}",
            "namespace": deployment["metadata"]["namespace"],
            "labels": own_labels,
            "ownerReferences": [controller_reference(deployment, DEPLOYMENTS.api_version, "Deployment")],
            "uid": "",
        },
        "spec": {
            "replicas": 0,
            "minReadySeconds": spec.get("minReadySeconds") or 0,
            "selector": {
                **selector,
                "matchLabels": {**(selector.get("matchLabels") or {}), labels.POD_TEMPLATE_HASH: hash_},
            },
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": own_labels}},
        },
    }
    replica_set["spec"]["replicas"] = new_size(view, [*old, replica_set], replica_set)
    revised = revision_annotations(view, replica_set, next_revision(old))
    replica_set["metadata"]["annotations"] = revised | replica_annotations(view)
    return replica_set


def next_revision(old: list[Object]) -> int:
    return max(map(revision, old), default=0) + 1


def revision_annotations(view: DeploymentView, replica_set: Object, wanted: int) -> dict[str, str]:
    """The annotations of the new ReplicaSet: those of the Deployment, its revision, and its revisions before."""
    own = dict(replica_set["metadata"].get("annotations") or {})
    inherited = view.deployment["metadata"].get("annotations") or {}
    own |= {name: value for name, value in inherited.items() if name not in labels.NOT_COPIED}
    before = annotation(replica_set, labels.REVISION)
    known = number(replica_set, labels.REVISION) if before else 0
    if known is None or known >= wanted:
        return own
    own[labels.REVISION] = str(wanted)
    if before:
        own[labels.REVISION_HISTORY] = _history(own.get(labels.REVISION_HISTORY, ""), before)
    return own


def _history(earlier: str, before: str) -> str:
    """A rollback gives a ReplicaSet a new revision; its earlier ones are kept, the newest of them if they are many."""
    revisions = [*earlier.split(","), before] if earlier else [before]
    while len(revisions) > 1 and len(",".join(revisions)) > _HISTORY_LENGTH:
        revisions.pop(0)
    return ",".join(revisions)


def replica_annotations(view: DeploymentView) -> dict[str, str]:
    """The size for which a ReplicaSet was scaled: a difference to the Deployment's means that it was scaled since."""
    return {
        labels.DESIRED_REPLICAS: str(view.replicas),
        labels.MAX_REPLICAS: str(view.replicas + view.max_surge),
    }


def new_size(view: DeploymentView, all_sets: list[Object], new: Object) -> int:
    """How many replicas the new ReplicaSet may have now."""
    if not view.is_rolling:
        return view.replicas
    room = view.replicas + view.max_surge - total_size(all_sets)
    if room <= 0:
        return size(new)
    return size(new) + min(room, view.replicas - size(new))


def expired(view: DeploymentView, old: list[Object]) -> list[Object]:
    """The old ReplicaSets beyond the revision history limit that have no pods any more."""
    if view.history_limit is None:
        return []
    alive = sorted((old_set for old_set in old if not is_terminating(old_set)), key=revision)
    surplus = alive[: max(len(alive) - view.history_limit, 0)]
    return [old_set for old_set in surplus if _is_idle(old_set)]


def _is_idle(replica_set: Object) -> bool:
    observed = count(replica_set, "observedGeneration") >= replica_set["metadata"].get("generation", 0)
    return observed and not size(replica_set) and not count(replica_set, "replicas")
