"""TaintNodesByCondition: a new node takes no pods until it has said that it is ready."""

from __future__ import annotations

from torchyard.apiserver.access.admission.attributes import AdmissionAttributes

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def taint_new_node(attributes: AdmissionAttributes) -> None:
    if not attributes.is_for("nodes"):
        return
    spec = attributes.new.setdefault("spec", {})
    present = spec.get("taints") or []
    if not any((one.get("key"), one.get("effect")) == tuple(NOT_READY.values()) for one in present):
        spec["taints"] = [*present, dict(NOT_READY)]
