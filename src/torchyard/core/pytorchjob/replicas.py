"""The pod and the service of one replica."""

from __future__ import annotations

from torchyard.api.metadata import controller_reference
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.pytorchjob.defaults import main_container
from torchyard.core.pytorchjob import gang
from torchyard.core.pytorchjob.environment import coordinator_port, environment, needs_token, serves_coordinator
from torchyard.core.pytorchjob.view import PyTorchJobSettings, PyTorchJobView, Slot
from torchyard.core.training.elastic import token_variable


def owner_reference(job: Object) -> Object:
    return controller_reference(job, names.API_VERSION, names.KIND)


def make_pod(view: PyTorchJobView, slot: Slot, settings: PyTorchJobSettings) -> Object:
    kind, index = slot
    replica = view.replicas[kind]
    template = replica["template"]
    template_metadata = template.get("metadata") or {}
    metadata: Object = {
        "name": names.replica_name(view.name, kind, index),
        "namespace": view.namespace,
        "labels": {**(template_metadata.get("labels") or {}), **_pod_labels(view, slot)},
        "annotations": dict(template_metadata.get("annotations") or {}),
        "ownerReferences": [owner_reference(view.job)],
    }
    if serves_coordinator(view, kind, index):
        metadata["annotations"] = {**_scrape_annotations(view), **metadata["annotations"]}
    if template_metadata.get("finalizers"):
        metadata["finalizers"] = list(template_metadata["finalizers"])
    spec = dict(template["spec"])
    variables: list[Object] = [{"name": name, "value": value} for name, value in environment(view, kind, index)]
    if needs_token(view.job):
        variables.append(token_variable(view.job))
    spec["containers"] = [
        {**container, "env": [*(container.get("env") or ()), *variables]} for container in spec["containers"]
    ]
    if kind == names.WORKER and view.waits_for_master:
        spec["initContainers"] = [*(spec.get("initContainers") or ()), _wait_for_master(view, settings)]
    spec["restartPolicy"] = pod_restart_policy(view, replica["restartPolicy"])
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    gang.add_gang_metadata(view, kind, pod, settings)
    return pod


def pod_restart_policy(view: PyTorchJobView, policy: str) -> str:
    """The kubelet restarts in place, unless the controller restarts: then the pod must fail visibly."""
    if policy == names.EXIT_CODE or view.restarts_whole:
        return names.NEVER
    return policy


def _pod_labels(view: PyTorchJobView, slot: Slot) -> dict[str, str]:
    kind, index = slot
    labels = names.selector_labels(view.name, kind, index)
    if kind == names.MASTER or (not view.has_master and index == 0):
        labels[names.JOB_ROLE] = names.MASTER_ROLE
    return {**names.old_labels(labels, view.name), **labels}


def _scrape_annotations(view: PyTorchJobView) -> dict[str, str]:
    """Where Prometheus finds the metrics of the coordinator, by the usual annotations; those of the template win."""
    return {
        names.SCRAPE: "true",
        names.SCRAPE_PORT: coordinator_port(view),
        names.SCRAPE_PATH: "/metrics",
    }


def _wait_for_master(view: PyTorchJobView, settings: PyTorchJobSettings) -> Object:
    """An init container that waits until the master's name resolves. Workers would otherwise fail to connect.

    Images without nslookup have getent.
    """
    master = names.replica_name(view.name, names.MASTER, 0)
    script = (
        f"err=1;for i in $(seq {settings.init_tries}); do "
        f"if nslookup {master} 2>/dev/null || getent hosts {master}; then err=0 && break; fi;"
        f"echo waiting for master; sleep {settings.init_pause_seconds:g}; done; exit $err"
    )
    return {
        "name": "init-pytorch",
        "image": settings.init_image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}},
        "command": ["sh", "-c", script],
    }


def make_service(view: PyTorchJobView, slot: Slot) -> Object:
    kind, index = slot
    labels = names.selector_labels(view.name, kind, index)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.replica_name(view.name, kind, index),
            "namespace": view.namespace,
            "labels": {**names.old_labels(labels, view.name), **labels},
            "ownerReferences": [owner_reference(view.job)],
        },
        "spec": {"clusterIP": "None", "selector": labels, "ports": _service_ports(view, kind)},
    }


def _service_ports(view: PyTorchJobView, kind: str) -> list[Object]:
    """Every port of the container `pytorch`.

    Unnamed ports get a name, because a service with several ports needs names.
    """
    ports: dict[str, Object] = {}
    for port in main_container(view.replicas[kind]["template"]["spec"]["containers"])["ports"]:
        number = port["containerPort"]
        name = port.get("name") or f"port-{number}"
        service_port = {"name": name, "port": number, "targetPort": number}
        if port.get("protocol"):
            service_port["protocol"] = port["protocol"]
        ports.setdefault(name, service_port)
    return list(ports.values())
