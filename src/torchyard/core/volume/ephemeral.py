"""Claims that live and die with their pod: a pod's ephemeral volumes."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.core.volume.view import CLAIM, claims_of


def ephemeral_claims(pod: Object) -> list[Object]:
    """The claims to make for a pod. It owns them, so they go with it."""
    metadata = pod["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    names = claims_of(pod)
    found = []
    for volume in pod["spec"].get("volumes") or ():
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template:
            given = template.get("metadata") or {}
            copied = {key: given[key] for key in ("labels", "annotations") if given.get(key)}
            own = {"name": names[volume["name"]], "namespace": metadata["namespace"], "ownerReferences": [owner]}
            found.append({"apiVersion": "v1", "kind": CLAIM, "metadata": {**copied, **own}, "spec": template["spec"]})
    return found


def is_made_for(claim: Object, pod: Object) -> bool:
    """Whether a claim was made for this pod, and does not only have the name."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(one["uid"] == pod["metadata"]["uid"] and one.get("controller") for one in owners)
