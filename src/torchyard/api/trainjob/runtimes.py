"""The runtimes that are there after `yard up` and `yard install`, and what the SDK asks about the installation."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.torchrun import TORCHYARD
from torchyard.api.trainjob import names

TORCH_DISTRIBUTED = "torch-distributed"
TORCH_ELASTIC = "torchyard-elastic"
IMAGE = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"
# The version of Trainer whose API this is. The SDK reads it from a ConfigMap and warns without one.
TRAINER_VERSION = "v2.3.0"
SYSTEM_NAMESPACE, PUBLIC = "kubeflow-system", "kubeflow-trainer-public"


def runtimes() -> list[Object]:
    """`torch-distributed` as upstream installs it, and one for programs with `torchyard.elastic` on 1 to 16 nodes.

    The second has no policy: the SDK starts a function with torchrun where the policy is torch, and torchrun starts
    all processes again when a node is lost.
    """
    elastic = _runtime(TORCH_ELASTIC)
    elastic["metadata"]["annotations"] = {names.ELASTIC: "1:16", names.RDZV_BACKEND: TORCHYARD}
    return [_runtime(TORCH_DISTRIBUTED, torch={}), elastic]


def _runtime(name: str, **policy: Object) -> Object:
    job = {
        "name": names.NODE,
        "template": {
            "metadata": {"labels": {names.ANCESTOR: names.TRAINER}},
            "spec": {"template": {"spec": {"containers": [{"name": names.NODE, "image": IMAGE}]}}},
        },
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.CLUSTER_RUNTIME_KIND,
        "metadata": {"name": name, "labels": {names.FRAMEWORK: names.TORCH}},
        "spec": {
            "mlPolicy": {"numNodes": 1, **policy},
            "template": {"spec": {"replicatedJobs": [job]}},
        },
    }


def public_objects() -> list[Object]:
    """The ConfigMap with the version, which every authenticated user may read."""
    rbac, api_group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    metadata = {"name": PUBLIC, "namespace": SYSTEM_NAMESPACE}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": [PUBLIC]}
    group = {"apiGroup": api_group, "kind": "Group", "name": "system:authenticated"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"kubeflow_trainer_version": TRAINER_VERSION},
        },
        {"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": rbac,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api_group, "kind": "Role", "name": PUBLIC},
            "subjects": [group],
        },
    ]
