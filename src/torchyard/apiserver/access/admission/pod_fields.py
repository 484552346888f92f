"""Warnings about the fields of a new pod or pod template that the nodes do not honour."""

from __future__ import annotations

from collections.abc import Iterator

from torchyard.api.cluster.node_labels import RUNTIME
from torchyard.api.objects import Object
from torchyard.api.pod.field_support import Rung
from torchyard.api.pod.fields import POD_FIELDS
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes

_TEMPLATE = ("spec", "template")
# Where an object of a resource has its pod template; pods are their own template.
_TEMPLATES: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): (),
    ("", "podtemplates"): ("template",),
    ("", "replicationcontrollers"): _TEMPLATE,
    ("apps", "daemonsets"): _TEMPLATE,
    ("apps", "deployments"): _TEMPLATE,
    ("apps", "replicasets"): _TEMPLATE,
    ("apps", "statefulsets"): _TEMPLATE,
    ("batch", "jobs"): _TEMPLATE,
    ("batch", "cronjobs"): ("spec", "jobTemplate", *_TEMPLATE),
    ("kubeflow.org", "pytorchjobs"): ("spec", "pytorchReplicaSpecs", "*", "template"),
}
RESOURCES = tuple(resource for _, resource in _TEMPLATES)


def unsupported_fields(attributes: AdmissionAttributes) -> list[str]:
    """Call it before the server drops fields."""
    path = _TEMPLATES.get((attributes.group, attributes.resource))
    if path is None or attributes.obj is None or not _is_new(attributes):
        return []
    texts: list[str] = []
    for template, at in _resolve(attributes.obj, path, ""):
        spec = template.get("spec") or {}
        if attributes.subresource:
            spec = {"ephemeralContainers": spec.get("ephemeralContainers")}
        for rung in _rungs(attributes):
            fields = POD_FIELDS.unsupported(spec, rung, f"{at}spec")
            texts += [text for field in fields if (text := str(field)) not in texts]
    return texts


def _is_new(attributes: AdmissionAttributes) -> bool:
    """Whether the write may set fields of the pod: a pod's own are immutable, except its ephemeral containers."""
    if attributes.resource == "pods" and attributes.old is not None:
        return attributes.subresource == "ephemeralcontainers"
    if attributes.subresource:
        return False
    return attributes.old is None or attributes.old.get("spec") != attributes.new.get("spec")


def _resolve(obj: Object, path: tuple[str, ...], at: str) -> Iterator[tuple[Object, str]]:
    if not path:
        yield obj, at
        return
    first, *rest = path
    for name in obj if first == "*" else (first,):
        child = obj.get(name)
        if isinstance(child, dict):
            yield from _resolve(child, tuple(rest), f"{at}{name}.")


def _rungs(attributes: AdmissionAttributes) -> list[Rung]:
    """The rungs of the cluster's nodes; before the first node has registered, the sandbox."""
    labels = {(node["metadata"].get("labels") or {}).get(RUNTIME) for node in attributes.lister.list("", "nodes")}
    if not labels:
        return ["sandbox"]
    rungs: tuple[Rung, ...] = ("sandbox", "process")
    return [rung for rung in rungs if rung in labels]
