"""The claims of a pod's ephemeral volumes, which are deleted with the pod."""

from __future__ import annotations

from torchyard.api.metadata import controller_reference
from torchyard.api.objects import Object
from torchyard.core.volume.view import CLAIM, claims_of


def ephemeral_claims(pod: Object) -> list[Object]:
    """The claims to create for a pod. The pod owns them, so they are deleted with it."""
    metadata = pod["metadata"]
    owner = controller_reference(pod, "v1", "Pod")
    names = claims_of(pod)
    claims = []
    for volume in pod["spec"].get("volumes") or ():
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template:
            template_metadata = template.get("metadata") or {}
            copied = {key: template_metadata[key] for key in ("labels", "annotations") if template_metadata.get(key)}
            own = {"name": names[volume["name"]], "namespace": metadata["namespace"], "ownerReferences": [owner]}
            claims.append({"apiVersion": "v1", "kind": CLAIM, "metadata": {**copied, **own}, "spec": template["spec"]})
    return claims


def is_made_for(claim: Object, pod: Object) -> bool:
    """Whether the pod owns the claim; the name alone is not enough."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == pod["metadata"]["uid"] and owner.get("controller") for owner in owners)
