"""A node's taints follow its conditions; taints of other writers are kept."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from torchyard.api.objects import Object
from torchyard.api.times import LATEST
from torchyard.core.node.eviction import eviction_time
from torchyard.core.node.taints import taints


def taint(key: str, effect: str = "NoSchedule") -> Object:
    return {"key": key, "effect": effect}


NOT_READY = taint("node.kubernetes.io/not-ready")
UNREACHABLE = taint("node.kubernetes.io/unreachable")
CORDONED = taint("node.kubernetes.io/unschedulable")
FULL = taint("node.kubernetes.io/disk-pressure")
MINE = taint("mine")
EVICTING = taint("node.kubernetes.io/not-ready", "NoExecute")


@pytest.mark.parametrize(
    ("present", "conditions", "unschedulable", "wanted"),
    [
        ([NOT_READY], {}, False, [NOT_READY]),
        ([NOT_READY], {"Ready": "True"}, False, []),
        ([MINE, NOT_READY], {"Ready": "True"}, False, [MINE]),
        ([MINE], {"Ready": "False"}, False, [MINE, NOT_READY]),
        ([NOT_READY], {"Ready": "Unknown"}, False, [UNREACHABLE]),
        ([], {"Ready": "True", "DiskPressure": "True"}, True, [FULL, CORDONED]),
        ([CORDONED, EVICTING], {"Ready": "True", "DiskPressure": "False"}, False, [EVICTING]),
    ],
)
def test_taints_follow_conditions(
    present: list[Object], conditions: dict[str, str], unschedulable: bool, wanted: list[Object]
) -> None:
    status_conditions = [{"type": kind, "status": status} for kind, status in conditions.items()]
    spec: Object = {"taints": present, "unschedulable": unschedulable}
    status = {"conditions": status_conditions}
    assert taints({"spec": spec, "status": status}) == wanted
    assert taints({"spec": {**spec, "taints": wanted}, "status": status}) == wanted


def test_a_pod_that_tolerates_a_taint_for_any_time_stays() -> None:
    toleration = {"operator": "Exists", "tolerationSeconds": 2**63 - 1}
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert eviction_time({"spec": {"tolerations": [toleration]}}, [EVICTING], now) == LATEST
