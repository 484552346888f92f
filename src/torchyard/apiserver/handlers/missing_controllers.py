"""Kinds that somebody must act on: stored all the same where nobody does, and the writer is told."""

from __future__ import annotations

from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext

# (group, plural) -> the controller that acts on it, by its name in kube-controller-manager or what runs beside it.
CONTROLLER_OF = {
    ("", "persistentvolumeclaims"): "persistentvolume-binder-controller",
    ("", "replicationcontrollers"): "replicationcontroller-controller",
    ("apps", "daemonsets"): "daemonset-controller",
    ("apps", "deployments"): "deployment-controller",
    ("apps", "replicasets"): "replicaset-controller",
    ("apps", "statefulsets"): "statefulset-controller",
    ("autoscaling", "horizontalpodautoscalers"): "horizontal-pod-autoscaler-controller",
    ("batch", "cronjobs"): "cronjob-controller",
    ("batch", "jobs"): "job-controller",
    ("certificates.k8s.io", "certificatesigningrequests"): "certificatesigningrequest-signing-controller",
    ("networking.k8s.io", "ingresses"): "an ingress controller",
    ("networking.k8s.io", "networkpolicies"): "a network plugin",
    ("policy", "poddisruptionbudgets"): "disruption-controller",
    ("resource.k8s.io", "resourceclaims"): "resourceclaim-controller",
}


def warn_if_no_controller(registry: Registry, ctx: RequestContext) -> None:
    """Say that an object is kept and nothing more, if that is so."""
    controller = CONTROLLER_OF.get((ctx.resource.group, ctx.resource.plural))
    if controller is not None and controller not in registry.controllers:
        ctx.warn(f"{ctx.resource.kind} is stored, but nothing in this plane acts on it: {controller} does not run here")
