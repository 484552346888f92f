"""TaintNodesByCondition: a new node is tainted until it reports that it is ready."""

from __future__ import annotations

from torchyard.apiserver.access.admission.attributes import AdmissionAttributes

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def taint_new_node(attributes: AdmissionAttributes) -> None:
    if not attributes.is_for("nodes"):
        return
    spec = attributes.new.setdefault("spec", {})
    taints = spec.get("taints") or []
    if not any((taint.get("key"), taint.get("effect")) == tuple(NOT_READY.values()) for taint in taints):
        spec["taints"] = [*taints, dict(NOT_READY)]
