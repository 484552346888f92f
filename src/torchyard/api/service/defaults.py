"""Defaults of Services, endpoints, ingress classes and network policies."""

from __future__ import annotations

from torchyard.api.objects import Object

AFFINITY_SECONDS = 10800


def default_service(service: Object) -> None:  # noqa: C901 - one branch per field, as upstream's function
    spec = service.setdefault("spec", {})
    if not spec.get("sessionAffinity"):
        spec["sessionAffinity"] = "None"
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    if spec["sessionAffinity"] == "ClientIP":
        config = spec.get("sessionAffinityConfig") or {}
        client = config.get("clientIP") or {}
        if client.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {**config, "clientIP": {**client, "timeoutSeconds": AFFINITY_SECONDS}}
    if not spec.get("type"):
        spec["type"] = "ClusterIP"
    for port in spec.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port") or 0
    reachable = spec["type"] in ("NodePort", "LoadBalancer") or (
        spec["type"] == "ClusterIP" and spec.get("externalIPs")
    )
    if reachable and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if spec.get("internalTrafficPolicy") is None and spec["type"] in ("NodePort", "LoadBalancer", "ClusterIP"):
        spec["internalTrafficPolicy"] = "Cluster"
    if spec["type"] == "LoadBalancer":
        if spec.get("allocateLoadBalancerNodePorts") is None:
            spec["allocateLoadBalancerNodePorts"] = True
        for ingress in ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
            if ingress.get("ip") and ingress.get("ipMode") is None:
                ingress["ipMode"] = "VIP"


def default_endpoints(endpoints: Object) -> None:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            if not port.get("protocol"):
                port["protocol"] = "TCP"


def default_endpoint_slice(slice_: Object) -> None:
    slice_.setdefault("endpoints", None)
    for port in slice_.get("ports") or ():
        if port.get("name") is None:
            port["name"] = ""
        if port.get("protocol") is None:
            port["protocol"] = "TCP"


def default_ingress_class(ingress_class: Object) -> None:
    parameters = (ingress_class.get("spec") or {}).get("parameters")
    if parameters is not None and parameters.get("scope") is None:
        parameters["scope"] = "Cluster"


def default_network_policy(policy: Object) -> None:
    spec = policy.setdefault("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
        for port in rule.get("ports") or ():
            if port.get("protocol") is None:
                port["protocol"] = "TCP"
