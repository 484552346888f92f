"""The counts in a StatefulSet's status while a rolling update goes on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from torchyard.api.objects import Object
from torchyard.core.workload.revisions import revision_data
from torchyard.core.workload.statefulset import StatefulSetView, decide
from torchyard.core.workload.statefulset_pods import make_pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stateful_set(replicas: int) -> Object:
    labels = {"app": "web"}
    spec: dict[str, Any] = {
        "replicas": replicas,
        "serviceName": "web",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": []}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    }
    return {"metadata": {"name": "web", "namespace": "n", "uid": "s", "generation": 3}, "spec": spec}


def revision(name: str, owner: Object) -> Object:
    return {"metadata": {"name": name}, "data": revision_data(owner)}


def running_pod(owner: Object, number: int, revision: str) -> Object:
    pod = make_pod(owner, number, revision)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {**pod, "metadata": {**pod["metadata"], "uid": str(number)}, "status": status}


@pytest.mark.parametrize(("pods", "current"), [("bb", 0), ("ab", 1), ("aa", 1)])
def test_only_a_deleted_pod_of_the_current_revision_lowers_the_current_replicas(pods: str, current: int) -> None:
    """Another update before the last one has ended: the status still names a, pods have b, and the template is c."""
    owner = stateful_set(len(pods))
    running = tuple(running_pod(owner, number, name) for number, name in enumerate(pods))
    decision = decide(StatefulSetView(owner, running, revision("a", owner), revision("c", owner), 0, NOW))
    assert [pod["metadata"]["name"] for pod in decision.delete] == ["web-1"]
    assert decision.status.get("currentReplicas", 0) == current
