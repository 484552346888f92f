"""Defaults of pods and pod templates."""

from __future__ import annotations

import re
from functools import lru_cache

from torchyard.api import quantity
from torchyard.api.compute_resources import HUGE_PAGES, canonical_list, is_pod_level
from torchyard.api.objects import Object
from torchyard.api.pod.totals import Amounts, Which, pod_total
from torchyard.api.volume.defaults import default_claim_spec, default_source

GRACE_PERIOD = 30
SCHEDULER = "default-scheduler"
CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")

_component = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_domain = (
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])"
)
_reference = re.compile(
    rf"(?:{_domain}(?::[0-9]+)?/)?{_component}(?:/{_component})*"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?P<digest>@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
).fullmatch


@lru_cache(maxsize=1024)
def pull_policy(image: str) -> str:
    """Return Always for the tag `latest` and for a missing tag. An invalid reference counts as tagged."""
    parts = _reference(image)
    if parts is None:
        return "IfNotPresent"
    tag, digest = parts.group("tag"), parts.group("digest")
    return "Always" if tag == "latest" or (tag is None and digest is None) else "IfNotPresent"


def default_pod(pod: Object) -> None:
    """Default a pod: its spec, and requests from limits, which templates do not get."""
    spec = pod.get("spec")
    if spec is None:
        spec = pod["spec"] = {}
    default_spec(spec)
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    host_network = spec.get("hostNetwork")
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            _requests_from_limits(container["resources"])
            if host_network:
                _host_ports(container)
    if spec.get("resources"):
        _default_pod_level(spec)


def default_template(template: Object) -> None:
    """Default a pod template of a workload."""
    if template.get("metadata") is None:
        template["metadata"] = {}
    spec = template.get("spec")
    if spec is None:
        spec = template["spec"] = {}
    default_spec(spec)


def default_spec(spec: Object) -> None:
    """Default the fields that pods and templates share."""
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for kind in CONTAINER_LISTS:
        for container in spec.get(kind) or ():
            default_container(container)
    if not spec.get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = GRACE_PERIOD
    if not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    # serviceAccount is the old name of serviceAccountName; both are always equal
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if not spec.get("schedulerName"):
        spec["schedulerName"] = SCHEDULER
    if overhead := spec.get("overhead"):
        canonical_list(overhead)


def default_container(container: Object) -> None:  # noqa: C901 - one branch per field, as upstream's function
    resources = container.get("resources")
    if resources is None:
        container["resources"] = {}
    else:
        canonical_list(resources.get("limits"))
        canonical_list(resources.get("requests"))
    if not container.get("terminationMessagePath"):
        container["terminationMessagePath"] = "/dev/termination-log"
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image") or "")
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in container.get("env") or ():
        if source := variable.get("valueFrom"):
            _default_downward(source)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is not None:
            _default_probe(probe)
    lifecycle = container.get("lifecycle")
    if lifecycle:
        for name in ("postStart", "preStop"):
            if lifecycle.get(name):
                _default_handler(lifecycle[name])


def _default_downward(source: Object) -> None:
    """Default the `fieldRef` or `resourceFieldRef` of a variable or of a file in a volume."""
    if (field := source.get("fieldRef")) and not field.get("apiVersion"):
        field["apiVersion"] = "v1"
    if resource := source.get("resourceFieldRef"):
        resource["divisor"] = quantity.canonical(resource.get("divisor") or "0")


def _default_probe(probe: Object) -> None:
    _default_handler(probe)
    for name, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        if not probe.get(name):
            probe[name] = value


def _default_handler(handler: Object) -> None:
    if (http := handler.get("httpGet")) is not None:
        if not http.get("path"):
            http["path"] = "/"
        if not http.get("scheme"):
            http["scheme"] = "HTTP"
    if (grpc := handler.get("grpc")) is not None and grpc.get("service") is None:
        grpc["service"] = ""


def _requests_from_limits(resources: Object) -> None:
    limits = resources.get("limits")
    if not limits:
        return
    requests = resources.get("requests")
    resources["requests"] = {**limits, **requests} if requests else dict(limits)


def _host_ports(container: Object) -> None:
    """With hostNetwork, hostPort equals containerPort."""
    for port in container.get("ports") or ():
        if not port.get("hostPort"):
            port["hostPort"] = port.get("containerPort") or 0


def _default_pod_level(spec: Object) -> None:
    """Default the requests of the pod as a whole to the sum of its containers' requests, or else to its own limits.

    Huge pages cannot be overcommitted: without pod-level limits, the sum of the containers' limits applies.
    """
    resources = spec["resources"]
    canonical_list(resources.get("limits"))
    canonical_list(resources.get("requests"))
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    if not limits and not requests:
        return
    for name, amount in container_total(spec, "limits").items():
        if name.startswith(HUGE_PAGES):
            limits.setdefault(name, str(amount))
    for name, amount in container_total(spec, "requests").items():
        if not name.startswith(HUGE_PAGES):
            requests.setdefault(name, str(amount))
    for name, text in limits.items():
        if is_pod_level(name):
            requests.setdefault(name, text)
    resources.update({key: value for key, value in (("limits", limits), ("requests", requests)) if value})


def container_total(spec: Object, which: Which) -> Amounts:
    """Sum the `requests` or `limits` of a pod's containers over the resources that pods may request as a whole."""
    total = pod_total({name: spec.get(name) for name in ("containers", "initContainers")}, which)
    return {name: amount for name, amount in total.items() if is_pod_level(name)}


def _default_volume(volume: Object) -> None:
    if all(value is None for name, value in volume.items() if name != "name"):
        volume["emptyDir"] = {}
        return
    default_source(volume)
    if items := (volume.get("downwardAPI") or {}).get("items"):
        for item in items:
            _default_downward(item)
    for source in (volume.get("projected") or {}).get("sources") or ():
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _default_downward(item)
        token = source.get("serviceAccountToken")
        if token is not None and token.get("expirationSeconds") is None:
            token["expirationSeconds"] = 3600
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is not None:
        default_claim_spec(template.setdefault("spec", {}))
    limit = (volume.get("emptyDir") or {}).get("sizeLimit")
    if limit is not None:
        volume["emptyDir"]["sizeLimit"] = quantity.canonical(limit)
