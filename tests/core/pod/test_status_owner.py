"""Which part of a pod's status the node writes, beside the conditions of other writers."""

from __future__ import annotations

from torchyard.api.pod import status_messages
from torchyard.core.pod.status import own_part


def test_conditions_and_fields_of_others_are_not_the_nodes() -> None:
    own = {"type": "Ready", "status": "True"}
    others = [{"type": kind, "status": "True"} for kind in ("example.com/gate", "DisruptionTarget")]
    status = {
        "phase": "Running",
        "qosClass": "BestEffort",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [*others, own],
    }
    assert own_part(status) == {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": [own]}


def test_a_disruption_by_the_node_is_its_own() -> None:
    disruption = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": status_messages.TERMINATION_BY_KUBELET,
    }
    assert own_part({"conditions": [disruption]}) == {"conditions": [disruption]}
