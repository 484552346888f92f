"""The hostfile of TrainJobs that use MPI."""

from __future__ import annotations

from typing import Any

from torchyard.core.trainjob.mpi import hostfile

JOB: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "train", "namespace": "default", "uid": "u1"},
    "spec": {"trainer": {"numProcPerNode": 2}},
}


def test_a_hostfile_names_each_node_with_its_slots() -> None:
    text = hostfile(JOB, {"mpi": {}}, {"launcher": 1, "node": 2}, "train")["data"]["hostfile"]
    assert text == "train-node-0-0.train slots=2\ntrain-node-0-1.train slots=2\n"


def test_the_hostfile_of_two_billion_nodes_is_only_longer_than_a_config_map_may_be() -> None:
    text = hostfile(JOB, {"mpi": {}}, {"node": 2**31 - 1}, "train")["data"]["hostfile"]
    assert 2**20 < len(text) < 2**23
