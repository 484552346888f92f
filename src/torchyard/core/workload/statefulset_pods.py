"""The pods and claims of a StatefulSet: names by ordinal, identity, storage, and who owns a claim."""

from __future__ import annotations

import re

from torchyard.api.gvr import STATEFUL_SETS
from torchyard.api.metadata import controller_reference, is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_ready, phase
from torchyard.api.workload import labels
from torchyard.core.workload.pods import pod_from_template

_parent_and_ordinal = re.compile(r"(.*)-([0-9]+)").fullmatch
_INT32 = 2**31 - 1


def start_ordinal(stateful_set: Object) -> int:
    return int((stateful_set["spec"].get("ordinals") or {}).get("start") or 0)


def ordinals(stateful_set: Object) -> range:
    start = start_ordinal(stateful_set)
    return range(start, start + stateful_set["spec"]["replicas"])


def ordinal(pod: Object) -> int:
    """The number at the end of a pod's name; -1 if there is none."""
    match = _parent_and_ordinal(pod["metadata"]["name"])
    value = int(match[2][:11]) if match else -1
    return value if value <= _INT32 else -1


def is_member(stateful_set: Object, pod: Object) -> bool:
    match = _parent_and_ordinal(pod["metadata"]["name"])
    return match is not None and match[1] == stateful_set["metadata"]["name"]


def is_created(pod: Object) -> bool:
    return bool((pod.get("status") or {}).get("phase"))


def is_running_and_ready(pod: Object) -> bool:
    return phase(pod) == "Running" and is_ready(pod)


def is_healthy(pod: Object) -> bool:
    return is_running_and_ready(pod) and not is_terminating(pod)


def revision_of(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(labels.CONTROLLER_REVISION_HASH, ""))


def make_pod(stateful_set: Object, number: int, revision: str) -> Object:
    """The pod of an ordinal, from the template of `stateful_set` (which may be an earlier one)."""
    reference = controller_reference(stateful_set, STATEFUL_SETS.api_version, "StatefulSet")
    pod = pod_from_template(stateful_set, stateful_set["spec"]["template"], reference)
    name = f"{stateful_set['metadata']['name']}-{number}"
    pod["metadata"]["name"] = name
    pod["metadata"]["labels"][labels.CONTROLLER_REVISION_HASH] = revision
    pod["spec"]["hostname"] = name
    pod["spec"]["subdomain"] = stateful_set["spec"].get("serviceName") or ""
    return with_storage(stateful_set, with_identity(stateful_set, pod))


def with_identity(stateful_set: Object, pod: Object) -> Object:
    name = pod["metadata"]["name"]
    own = {
        **(pod["metadata"].get("labels") or {}),
        labels.STATEFUL_SET_POD_NAME: name,
        labels.POD_INDEX: str(ordinal(pod)),
    }
    return {**pod, "metadata": {**pod["metadata"], "namespace": stateful_set["metadata"]["namespace"], "labels": own}}


def with_storage(stateful_set: Object, pod: Object) -> Object:
    """Its claims as volumes; a volume of the template with the same name gives way."""
    names = claim_names(stateful_set, ordinal(pod))
    if not names:
        return pod
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in names.items()]
    others = [volume for volume in pod["spec"].get("volumes") or () if volume["name"] not in names]
    return {**pod, "spec": {**pod["spec"], "volumes": [*volumes, *others]}}


def keeps_invariants(stateful_set: Object, pod: Object) -> bool:
    """Whether a pod still has its labels and its claims."""
    own = pod["metadata"].get("labels") or {}
    if own.get(labels.STATEFUL_SET_POD_NAME) != pod["metadata"]["name"]:
        return False
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    return all(
        ((volumes.get(name) or {}).get("persistentVolumeClaim") or {}).get("claimName") == claim
        for name, claim in claim_names(stateful_set, ordinal(pod)).items()
    )


def claim_names(stateful_set: Object, number: int) -> dict[str, str]:
    """The name of the claim of each claim template."""
    owner = stateful_set["metadata"]["name"]
    templates = stateful_set["spec"].get("volumeClaimTemplates") or ()
    return {template["metadata"]["name"]: f"{template['metadata']['name']}-{owner}-{number}" for template in templates}


def make_claims(stateful_set: Object, number: int) -> list[Object]:
    """The claims of an ordinal, with the labels that the selector requires."""
    selected = (stateful_set["spec"]["selector"] or {}).get("matchLabels") or {}
    claims = []
    for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
        metadata = {
            **template["metadata"],
            "name": claim_names(stateful_set, number)[template["metadata"]["name"]],
            "namespace": stateful_set["metadata"]["namespace"],
            "labels": {**(template["metadata"].get("labels") or {}), **selected},
        }
        metadata.pop("creationTimestamp", None)
        claims.append(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"]}
        )
    return claims


def claim_owners(stateful_set: Object, pod: Object, claim: Object) -> list[Object]:
    """The owner references that the retention policy wants: with its last owner, a claim is deleted.

    When the set is deleted, the set is the owner. When it is scaled down, the pod that goes is the owner.
    """
    policy = stateful_set["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    is_surplus = ordinal(pod) not in ordinals(stateful_set)
    goes_when_scaled = policy.get("whenScaled") == "Delete" and is_surplus
    goes_when_deleted = policy.get("whenDeleted") == "Delete" and not goes_when_scaled
    ours = {stateful_set["metadata"]["uid"], pod["metadata"].get("uid")}
    before: list[Object] = list(claim["metadata"].get("ownerReferences") or ())
    owners = [owner for owner in before if owner["uid"] not in ours]
    if goes_when_deleted:
        owners.append(controller_reference(stateful_set, STATEFUL_SETS.api_version, "StatefulSet"))
    if goes_when_scaled:
        owners.append(controller_reference(pod, "v1", "Pod"))
    return before if _uids(before) == _uids(owners) else owners


def _uids(owners: list[Object]) -> set[str]:
    return {owner["uid"] for owner in owners}


def is_stale(pod_name: str, uid: str, claim: Object) -> bool:
    """Whether a claim belongs to an earlier pod of this name, with which it will be deleted."""
    return any(
        owner["kind"] == "Pod" and owner["name"] == pod_name and owner["uid"] != uid
        for owner in claim["metadata"].get("ownerReferences") or ()
    )
