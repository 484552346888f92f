"""The ranks of replicas."""

from __future__ import annotations

import pytest

from torchyard.api.objects import Object
from torchyard.core.run.ranks import rank_by_name


def training(*roles: str) -> Object:
    specs: Object = {role: {} for role in roles}
    return {"kind": "PyTorchJob", "metadata": {"name": "a-1"}, "spec": {"pytorchReplicaSpecs": specs}}


def batch(mode: str) -> Object:
    return {"kind": "Job", "metadata": {"name": "a-1"}, "spec": {"completionMode": mode}}


@pytest.mark.parametrize(
    ("job", "pod", "rank"),
    [
        (training("Master", "Worker"), "a-1-master-0", 0),
        (training("Master", "Worker"), "a-1-worker-10", 11),
        (training("Worker"), "a-1-worker-10", 10),
        (training("Worker"), "a-1-other", None),
        (batch("Indexed"), "a-1-12-x7k2p", 12),
        (batch("NonIndexed"), "a-1-x7k2p", None),
        ({"kind": "Pod", "metadata": {"name": "a-1"}, "spec": {}}, "a-1", None),
    ],
)
def test_the_rank_of_a_deleted_pod_is_in_its_name(job: Object, pod: str, rank: int | None) -> None:
    assert rank_by_name(job, pod) == rank
