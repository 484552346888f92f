"""The ranks of replicas."""

from __future__ import annotations

import pytest

from torchyard.api.objects import Object
from torchyard.core.run.ranks import rank_by_name, rank_of


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


@pytest.mark.parametrize(
    ("text", "rank"), [("7", 7), ("007", 7), ("", None), ("-1", None), ("\u00b2", None), ("9" * 5000, None)]
)
def test_a_rank_is_a_number_that_a_user_wrote(text: str, rank: int | None) -> None:
    env = [{"name": "RANK", "value": text}]
    assert rank_of({"metadata": {}, "spec": {"containers": [{"env": env}]}}) == rank
    index = {"batch.kubernetes.io/job-completion-index": text}
    assert rank_of({"metadata": {"annotations": index}, "spec": {"containers": [{"env": [{"name": "RANK"}]}]}}) == rank
