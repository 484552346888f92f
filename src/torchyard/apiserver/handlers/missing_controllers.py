"""A warning for objects that are stored although the controller that acts on them does not run in this plane."""

from __future__ import annotations

from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext

# By (group, plural): the controller that acts on the resource, by its name in kube-controller-manager where it has one.
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
    """Warn the client if no controller acts on the resource."""
    controller = CONTROLLER_OF.get((ctx.resource.group, ctx.resource.plural))
    if controller is not None and controller not in registry.controllers:
        ctx.warn(f"{ctx.resource.kind} is stored, but nothing in this plane acts on it: {controller} does not run here")
