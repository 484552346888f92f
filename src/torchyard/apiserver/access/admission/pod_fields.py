"""Warnings about the fields of a new pod or pod template that the nodes do not honour."""

from __future__ import annotations

from collections.abc import Iterator

from torchyard.api.cluster.node_labels import ORDINARY, RUNTIME, SECCOMP, USER
from torchyard.api.objects import Object
from torchyard.api.pod.field_support import Rung, SupportTable
from torchyard.api.pod.fields import NO_SECCOMP_FIELDS, ORDINARY_USER_FIELDS, POD_FIELDS
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
        for table, rung in _tables(attributes):
            fields = table.unsupported(spec, rung, f"{at}spec")
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


def _tables(attributes: AdmissionAttributes) -> Iterator[tuple[SupportTable, Rung]]:
    """The tables that hold for the cluster's nodes; before the first node has registered, that of the sandbox."""
    nodes = [node["metadata"].get("labels") or {} for node in attributes.lister.list("", "nodes")]
    rungs: tuple[Rung, ...] = ("sandbox", "process")
    for rung in rungs:
        of_rung = [labels for labels in nodes if labels.get(RUNTIME) == rung]
        if of_rung or (not nodes and rung == "sandbox"):
            yield POD_FIELDS, rung
        if any(labels.get(USER) == ORDINARY for labels in of_rung):
            yield ORDINARY_USER_FIELDS, rung
        if any(labels.get(SECCOMP) == "none" for labels in of_rung):
            yield NO_SECCOMP_FIELDS, rung
