"""The JobSet of a TrainJob, computed from its runtime as Trainer 2.3 does.

What differs, because upstream's result would not work: torchrun's variables are also set for a job without
`spec.trainer`; the address of the first node follows the names of its job and of the subdomain; ports of the runtime
stay.
"""

from __future__ import annotations

from typing import Any

from torchyard.api.jobset import names as jobsets
from torchyard.api.objects import Object
from torchyard.api.trainjob import environment, names
from torchyard.api.trainjob.elastic import elastic_nodes
from torchyard.api.trainjob.validation import ancestor
from torchyard.core.trainjob import elastic, mpi
from torchyard.core.trainjob.initializers import claim_mount, claim_volume, initializer_claim, initializer_of
from torchyard.core.trainjob.patches import patched_template
from torchyard.core.trainjob.pod_groups import pod_metadata
from torchyard.core.trainjob.policies import TrainingParameters, policy_environment, torch_environment
from torchyard.core.trainjob.status_server import StatusServer, report_mount, report_variables, report_volume


def make_jobset(job: Object, runtime: Object, server: StatusServer | None = None) -> Object:
    """`server` is where the nodes report their progress; None: nowhere."""
    template = patched_template(runtime, job)
    counts = pod_counts(job, runtime, template["spec"])
    name = job["metadata"]["name"]
    builder = _Builder(job, runtime, template["spec"], counts, server)
    metadata: Object = {"name": name, "namespace": job["metadata"]["namespace"]}
    metadata |= {field: values for field, values in template["metadata"].items() if values}
    metadata["ownerReferences"] = [names.owner_reference(job)]
    if builder.coordinated is not None:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **builder.coordinated}
    spec = {
        **template["spec"],
        "replicatedJobs": [builder.replicated_job(each) for each in template["spec"]["replicatedJobs"]],
        "suspend": bool(job["spec"].get("suspend")),
    }
    return {"apiVersion": jobsets.API_VERSION, "kind": jobsets.KIND, "metadata": metadata, "spec": spec}


def pod_counts(job: Object, runtime: Object, jobset_spec: Object) -> dict[str, int]:
    """The number of pods of each replicated job, in the template's order."""
    policy, trainer = runtime["spec"].get("mlPolicy"), job["spec"].get("trainer") or {}
    counts = {}
    for each in jobset_spec["replicatedJobs"]:
        count = each["template"].get("spec", {}).get("parallelism", 1)
        if ancestor(each) == names.TRAINER:
            if policy is not None:
                count = policy.get("numNodes", 1)
            count = trainer.get("numNodes", count)
        counts[each["name"]] = count
    if policy is not None and names.MPI in policy:
        mpi.set_counts(policy, trainer, counts)
    return counts


class _Builder:
    """Builds the replicated jobs of one TrainJob."""

    def __init__(
        self, job: Object, runtime: Object, jobset_spec: Object, counts: dict[str, int], server: StatusServer | None
    ) -> None:
        self._job, self._counts, self._server = job, counts, server
        self._name: str = job["metadata"]["name"]
        self._policy: Object = runtime["spec"].get("mlPolicy") or {}
        self._groups: Object = runtime["spec"].get("podGroupPolicy") or {}
        self._trainer: Object = job["spec"].get("trainer") or {}
        self._elastic = elastic_nodes(job, runtime)
        self._subdomain = (jobset_spec.get("network") or {}).get("subdomain") or self._name
        trainer = next((each for each in jobset_spec["replicatedJobs"] if ancestor(each) == names.TRAINER), None)
        self._training = None if trainer is None else self._describe(trainer)
        self._node_job = "" if trainer is None else trainer["name"]
        targets = ((self._policy.get(names.TORCH) or {}).get("envInjection") or {}).get("targets") or ()
        self._injected = {(each["jobName"], name) for each in targets for name in each["containerNames"]}

    def _describe(self, replicated_job: Object) -> TrainingParameters:
        pod = replicated_job["template"]["spec"]["template"]["spec"]
        node: Object = next((each for each in pod["containers"] if each["name"] == names.NODE), {})
        address = f"{jobsets.job_name(self._name, replicated_job['name'], 0)}-0.{self._subdomain}"
        return TrainingParameters(
            self._counts[replicated_job["name"]],
            address,
            self._trainer.get("resourcesPerNode") or node.get("resources") or {},
            self._trainer.get("numProcPerNode"),
            None if self._elastic is None else self._elastic.least,
        )

    @property
    def coordinated(self) -> Object | None:
        """The annotation of a JobSet whose nodes have Torchyard's coordinator; None for others."""
        if self._elastic is None or self._training is None or not self._elastic.uses_coordinator:
            return None
        return elastic.nodes_annotation(self._elastic, self._training.nodes)

    def _merged_resources(self, container: Object) -> Object:
        own, runtime = self._trainer.get("resourcesPerNode") or {}, container.get("resources") or {}
        merged = {**runtime, **own}
        for field in ("limits", "requests"):
            if field in merged:
                merged[field] = {**(runtime.get(field) or {}), **(own.get(field) or {})}
        return merged

    def replicated_job(self, runtime_job: Object) -> Object:
        step, count = ancestor(runtime_job), self._counts[runtime_job["name"]]
        job_spec = runtime_job["template"].get("spec") or {}
        pods = job_spec.get("template") or {}
        spec = dict(pods.get("spec") or {})
        spec["containers"] = [self._container(runtime_job["name"], step, each) for each in spec.get("containers") or ()]
        if names.MPI in self._policy and (volumes := mpi.volumes(self._name, runtime_job["name"])):
            spec["volumes"] = _upserted(spec.get("volumes") or (), volumes)
        if step == names.TRAINER and self._server is not None:
            self._add_reports(spec, self._server)
        claim = initializer_claim(self._job, step)
        if claim:
            spec["volumes"] = _upserted(spec.get("volumes") or (), [claim_volume(claim)])
        metadata = dict(pods.get("metadata") or {})
        for field, values in pod_metadata(self._groups, self._name).items():
            metadata[field] = {**(metadata.get(field) or {}), **values}
        template: Object = {**pods, "spec": spec}
        if metadata:
            template["metadata"] = metadata
        if runtime_job["name"] == self._node_job and self.coordinated is not None:
            job_spec = {**elastic.job_defaults(), **job_spec}
        replicated: Object = {
            **runtime_job,
            "template": {
                **runtime_job["template"],
                "spec": {**job_spec, "parallelism": count, "completions": count, "template": template},
            },
        }
        return {**replicated, "replicas": 1} if step in names.CONTAINERS else replicated

    def _add_reports(self, spec: Object, server: StatusServer) -> None:
        """What every container of a node needs to report its progress."""
        variables = report_variables(server, self._job)
        spec["containers"] = [
            {
                **container,
                "env": _upserted(container.get("env") or (), variables),
                "volumeMounts": _upserted(container.get("volumeMounts") or (), [report_mount()]),
            }
            for container in spec["containers"]
        ]
        spec["volumes"] = _upserted(spec.get("volumes") or (), [report_volume(server, self._job)])

    def _container(self, job: str, step: str, container: Object) -> Object:
        container = dict(container)
        if step == names.TRAINER and container["name"] == names.NODE:
            self._set_trainer(container)
        elif step in (names.DATASET_INITIALIZER, names.MODEL_INITIALIZER) and container["name"] == step:
            self._set_initializer(step, container)
        if (job, container["name"]) in self._injected and self._training is not None:
            container["env"] = _upserted(container.get("env") or (), torch_environment(self._training))
        if names.MPI in self._policy and container["name"] == names.NODE:
            if mounts := mpi.mounts(self._policy, job):
                container["volumeMounts"] = _upserted(container.get("volumeMounts") or (), mounts)
            if job == names.LAUNCHER:
                slots = mpi.processes(self._policy, self._trainer)
                container["env"] = _upserted(container.get("env") or (), mpi.launcher_environment(slots))
        return container

    def _set_trainer(self, container: Object) -> None:
        container |= {field: self._trainer[field] for field in ("image", "command", "args") if self._trainer.get(field)}
        if self._trainer.get("resourcesPerNode"):
            container["resources"] = self._merged_resources(container)
        assert self._training is not None
        variables, own = self._variables(self._training), self._trainer.get("env") or []
        # No variable is reserved for JAX, so a job may replace them.
        layers = [variables, own] if names.JAX in self._policy else [own, variables]
        if any(layers):
            container["env"] = _upserted(_upserted(container.get("env") or (), layers[0]), layers[1])
        if variables:
            container["ports"] = _with_port(container.get("ports") or (), names.PORT)
        if self.coordinated is not None:
            container["ports"] = _with_port(container["ports"], names.COORDINATOR_PORT, names.COORDINATOR_PORT_NAME)

    def _variables(self, training: TrainingParameters) -> list[Object]:
        if self.coordinated is None or self._elastic is None:
            return policy_environment(self._policy, training)
        host = training.address
        workers = elastic.worker_environment(self._job, self._elastic, training.nodes, host, self._node_job)
        # Programs that torchrun starts are elastic too, with its own rendezvous.
        return [*torch_environment(training), *workers]

    def _set_initializer(self, step: str, container: Object) -> None:
        initializer = initializer_of(self._job, step)
        if initializer is None:
            return
        if initializer_claim(self._job, step):
            container["volumeMounts"] = _upserted(container.get("volumeMounts") or (), [claim_mount()])
        uri = initializer.get("storageUri")
        variables = [{"name": environment.STORAGE_URI, "value": uri}] if uri else []
        if env := [*variables, *(initializer.get("env") or ())]:
            container["env"] = _upserted(container.get("env") or (), env)
        if initializer.get("secretRef"):
            container["envFrom"] = [*(container.get("envFrom") or ()), {"secretRef": initializer["secretRef"]}]


def _upserted(current: Any, new: Any) -> list[Object]:
    """Items by name: those that are there keep their place and get the new value."""
    by_name = {item["name"]: item for item in current}
    return list((by_name | {item["name"]: item for item in new}).values())


def _with_port(ports: Any, number: int, name: str = "") -> list[Object]:
    """A port that the runtime declares stays as it is."""
    if any(port["containerPort"] == number or (name and port.get("name") == name) for port in ports):
        return list(ports)
    return [*ports, {"containerPort": number, **({"name": name} if name else {})}]
