"""The claims of a pod that is being scheduled: which nodes they allow, and what to write once a node is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import has_ended
from torchyard.api.volume import messages
from torchyard.core.scheduling.filters import matches_term
from torchyard.core.scheduling.node_info import NodeInfo
from torchyard.core.volume.bind import reserve
from torchyard.core.volume.ephemeral import ephemeral_claims, is_made_for
from torchyard.core.volume.match import best_volume
from torchyard.core.volume.view import (
    CLAIM,
    VOLUME,
    Write,
    access_modes,
    annotations_of,
    claims_of,
    class_of,
    is_for,
    phase,
    storage_class,
    waits_for_consumer,
)


@dataclass(frozen=True, slots=True)
class VolumeBinding:
    """kube-scheduler's VolumeBinding plugin. The fields look up claims, volumes, classes and pods."""

    claim: Callable[[str, str], Object | None]
    volume: Callable[[str], Object | None]
    candidates: Callable[[Object], list[Object]]  # the volumes that are for a claim, and the free ones of its class
    classes: Callable[[], list[Object]]
    users: Callable[[str, str], Iterable[Object]]  # the pods that use a claim, by namespace and name

    def pre_filter(self, pod: Object) -> str:
        """A reason that excludes every node; empty if there is none."""
        namespace = pod["metadata"]["namespace"]
        ephemeral = {claim_object["metadata"]["name"] for claim_object in ephemeral_claims(pod)}
        for name in claims_of(pod).values():
            claim = self.claim(namespace, name)
            if claim is None:
                return messages.claim_missing(name)
            if name in ephemeral and not is_made_for(claim, pod):
                return messages.not_the_pods(f"{namespace}/{name}", f"{namespace}/{pod['metadata']['name']}")
            if is_terminating(claim):
                return messages.claim_going(name)
            if phase(claim) == "Lost":
                return messages.claim_lost(name, claim["spec"].get("volumeName") or "")
            if not _is_bound(claim) and not self._is_delayed(claim):
                return messages.UNBOUND
            if "ReadWriteOncePod" in access_modes(claim) and self._is_taken(pod, name):
                return messages.ONE_POD
        return ""

    def is_binding(self, pod: Object) -> bool:
        """Whether a node is already selected and the volumes are being provisioned or bound."""
        return any(
            messages.SELECTED_NODE in annotations_of(claim)
            or any(is_for(volume, claim) for volume in self.candidates(claim))
            for claim in self._unbound(pod)
        )

    def filter(self, pod: Object, node: NodeInfo) -> str:
        """Why the pod's volumes are not available on a node; empty if they are."""
        namespace = pod["metadata"]["namespace"]
        for name in claims_of(pod).values():
            claim = self.claim(namespace, name)
            volume = self.volume(claim["spec"]["volumeName"]) if claim is not None and _is_bound(claim) else None
            if volume is not None and not reaches(volume, node):
                return messages.AFFINITY_CONFLICT
        for claim in self._unbound(pod):
            if self._static(claim, node) is None and not self._provisioner(claim):
                return messages.NONE_ON_NODE
        return ""

    def pre_bind_writes(self, pod: Object, node: NodeInfo) -> list[Write]:
        """A reserved volume for each delayed claim, or the selected node for its provisioner."""
        writes = []
        for claim in self._unbound(pod):
            volume = self._static(claim, node)
            if volume is not None:
                writes.append(Write(VOLUME, reserve(volume, claim)))
            else:
                annotations = {**annotations_of(claim), messages.SELECTED_NODE: node.name}
                writes.append(Write(CLAIM, {**claim, "metadata": {**claim["metadata"], "annotations": annotations}}))
        return writes

    def _unbound(self, pod: Object) -> Iterator[Object]:
        for name in claims_of(pod).values():
            claim = self.claim(pod["metadata"]["namespace"], name)
            if claim is not None and not _is_bound(claim) and self._is_delayed(claim):
                yield claim

    def _is_delayed(self, claim: Object) -> bool:
        storage_class_object, _ = storage_class(class_of(claim), self.classes())
        return not claim["spec"].get("volumeName") and waits_for_consumer(storage_class_object)

    def _provisioner(self, claim: Object) -> str:
        storage_class_object, _ = storage_class(class_of(claim), self.classes())
        name = str((storage_class_object or {}).get("provisioner") or "")
        return "" if name == messages.NO_PROVISIONER else name

    def _static(self, claim: Object, node: NodeInfo) -> Object | None:
        return best_volume(claim, self.candidates(claim), reachable=lambda volume: reaches(volume, node))

    def _is_taken(self, pod: Object, claim: str) -> bool:
        metadata = pod["metadata"]
        return any(
            other["spec"].get("nodeName") and not has_ended(other) and other["metadata"]["uid"] != metadata["uid"]
            for other in self.users(metadata["namespace"], claim)
        )


def _is_bound(claim: Object) -> bool:
    return bool(claim["spec"].get("volumeName")) and messages.BIND_COMPLETED in annotations_of(claim)


def reaches(volume: Object, node: NodeInfo) -> bool:
    """Whether a volume can be used on a node. A volume without node affinity can be used on every node."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return not required or any(matches_term(node, term) for term in required.get("nodeSelectorTerms") or ())
