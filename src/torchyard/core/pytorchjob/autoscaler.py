"""The HorizontalPodAutoscaler of an elastic job that names metrics."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.core.pytorchjob.view import PyTorchJobView


def desired_autoscaler(view: PyTorchJobView, owner: Object) -> Object | None:
    policy = view.elastic
    if policy is None or policy.get("metrics") is None:
        return None
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": view.name, "namespace": view.namespace, "ownerReferences": [owner]},
        "spec": {
            "scaleTargetRef": {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": view.name},
            "minReplicas": policy["minReplicas"],
            "maxReplicas": policy["maxReplicas"],
            "metrics": policy["metrics"],
        },
    }
