"""The CustomResourceDefinitions of TrainingRuntime and ClusterTrainingRuntime, which have the same spec."""

from __future__ import annotations

from functools import cache

from torchyard.api.jobset.crd import spec_schema
from torchyard.api.objects import Object
from torchyard.api.schema.builtin import definition
from torchyard.api.schema.structural import (
    BOOLEAN,
    BOUNDED_INT32,
    INT32,
    STRING,
    cel_rule,
    from_go_type,
    map_list,
    record,
    with_description,
)
from torchyard.api.trainjob import names
from torchyard.api.trainjob.crd import custom_resource, text

_ONE_POLICY = cel_rule(
    "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux)].filter(x, x).size() <= 1",
    "Only one of the policy can be configured",
)
_NO_NODE = cel_rule(
    "!self.exists(c, c == 'node')",
    "containerNames must not include the main node container because PET_* envs are always injected into it",
)
_FLUX_RULE = cel_rule("self >= 1", "NumProcPerNode in fluxPolicy must be >= 1")


def _torch() -> Object:
    containers = {"type": "array", "items": text(63), "minItems": 1, "maxItems": 8, "x-kubernetes-list-type": "set"}
    target = record(
        {"containerNames": {**containers, **_NO_NODE}, "jobName": text(253, minLength=1)}, "containerNames", "jobName"
    )
    injection = record({"targets": map_list(target, "jobName", maxItems=16)})
    return record(
        {"envInjection": with_description("Other containers that get torchrun's variables.", injection)},
    )


def _ml_policy() -> Object:
    mpi = {
        "mpiImplementation": {**STRING, "enum": ["OpenMPI", ""], "default": "OpenMPI"},
        "numProcPerNode": {**BOUNDED_INT32, "default": 1},
        "runLauncherAsNode": {**BOOLEAN, "default": False},
        "sshAuthMountPath": text(4096, default="/root/.ssh"),
    }
    fields = {
        "flux": with_description(
            "Not supported; kept for manifests.", record({"numProcPerNode": {**INT32, "default": 1, **_FLUX_RULE}})
        ),
        "jax": with_description("JAX's variables.", {"type": "object"}),
        "mpi": with_description("A launcher that starts the processes with mpirun.", record(mpi)),
        "numNodes": with_description("Number of nodes; 1 by default.", BOUNDED_INT32),
        "torch": with_description("torchrun's variables.", _torch()),
        "xgboost": with_description("XGBoost's variables.", {"type": "object"}),
    }
    return {**record(fields), **_ONE_POLICY}


def _pod_group_policy() -> Object:
    topology = record(
        {
            "highestTierAllowed": {"type": "integer", "default": 1},
            "mode": {**STRING, "enum": ["hard", "soft"], "default": "hard"},
        }
    )
    timeout = {**BOUNDED_INT32, "default": 60}
    return record(
        {
            "coscheduling": with_description(
                "A PodGroup of scheduler-plugins.", record({"scheduleTimeoutSeconds": timeout})
            ),
            "volcano": with_description("A PodGroup of Volcano.", record({"networkTopology": topology})),
        }
    )


def _spec() -> Object:
    metadata = from_go_type(definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"))
    template = {**record({"metadata": metadata, "spec": spec_schema()}), "minProperties": 1}
    fields = {
        "mlPolicy": with_description("The framework and the number of nodes.", _ml_policy()),
        "podGroupPolicy": with_description("How the pods are scheduled as one group.", _pod_group_policy()),
        "template": with_description("The JobSet.", template),
    }
    return {**record(fields), "minProperties": 1}


@cache
def definition_objects() -> tuple[Object, Object]:
    """The definitions of the namespaced kind and of the cluster's. Shared: copy them before changing them."""
    fields = {
        "apiVersion": STRING,
        "kind": STRING,
        "metadata": {"type": "object"},
        "spec": with_description("What TrainJobs of this runtime consist of.", _spec()),
    }
    schema = with_description("A template for TrainJobs.", record(fields))
    return (
        custom_resource(names.RUNTIME_KIND, names.RUNTIME_PLURAL, schema),
        custom_resource(names.CLUSTER_RUNTIME_KIND, names.CLUSTER_RUNTIME_PLURAL, schema, namespaced=False),
    )
