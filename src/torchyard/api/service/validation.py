"""What is valid in a Service, and what of it may change."""

from __future__ import annotations

from torchyard.api import checks, faults, names
from torchyard.api.behaviour import Object
from torchyard.api.faults import Fault
from torchyard.api.service.allocation import (
    check_cluster_ips,
    family_faults,
    is_externally_accessible,
    is_headless,
    needs_health_check_port,
)

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
_TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"
_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_AFFINITY_LIMIT = 86400
_ONLY_BALANCERS = "may only be used when `type` is 'LoadBalancer'"
_ONCE_SET = "may not change once set"


def validate_service(service: Object) -> list[Fault]:
    """The faults of a Service before its addresses and ports are allocated."""
    return family_faults(service) or _faults(service)


def _faults(service: Object) -> list[Fault]:
    found: list[Fault] = []
    spec = service["spec"]
    kind, ports, headless = spec.get("type") or "", spec.get("ports") or [], is_headless(service)
    annotations = service["metadata"].get("annotations") or {}
    mode, hints = annotations.get(_TOPOLOGY_MODE), annotations.get(_TOPOLOGY_HINTS)
    if mode is not None and hints is not None and mode != hints:
        detail = f"must match annotations[{_TOPOLOGY_HINTS}] when both are specified"
        found.append(faults.invalid(f"metadata.annotations[{_TOPOLOGY_MODE}]", mode, detail))
    if not ports and not headless and kind != "ExternalName":
        found.append(faults.required("spec.ports"))
    if kind in ("LoadBalancer", "NodePort") and headless:
        detail = f"may not be set to 'None' for {kind} services"
        found.append(faults.invalid("spec.clusterIPs[0]", "None", detail))
    if kind == "ExternalName":
        _check_external_name(spec, found)
    _check_ports(ports, found)
    found += names.validate_labels(spec.get("selector"), "spec.selector")
    _check_affinity(spec, found)
    if kind != "ExternalName":
        check_cluster_ips(service, found)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        field = f"spec.externalIPs[{index}]"
        if checks.ip(address, field, found):
            checks.ordinary_ip(address, field, found)
    checks.one_of(kind, _TYPES, "spec.type", found)
    _check_node_ports(kind, ports, found)
    _check_source_ranges(spec, annotations, found)
    if spec.get("allocateLoadBalancerNodePorts") is not None and kind != "LoadBalancer":
        found.append(faults.forbidden("spec.allocateLoadBalancerNodePorts", _ONLY_BALANCERS))
    if spec.get("allocateLoadBalancerNodePorts") is None and kind == "LoadBalancer":
        found.append(faults.required("allocateLoadBalancerNodePorts"))
    _check_balancer_class(spec, found)
    _check_traffic(service, found)
    return found


def _check_external_name(spec: Object, found: list[Fault]) -> None:
    for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(name):
            found.append(faults.forbidden(f"spec.{name}", "may not be set for ExternalName services"))
    name = (spec.get("externalName") or "").removesuffix(".")
    if name:
        checks.told(names.subdomain_problems(name), "spec.externalName", name, found)
    else:
        found.append(faults.required("spec.externalName"))


def _check_ports(ports: list[Object], found: list[Fault]) -> None:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at, name = f"spec.ports[{index}]", port.get("name") or ""
        if not name:
            if len(ports) > 1:
                found.append(faults.required(f"{at}.name"))
        else:
            checks.told(names.label_problems(name), f"{at}.name", name, found)
            if name in seen:
                found.append(faults.duplicate(f"{at}.name", name))
            seen.add(name)
        checks.port_number(port.get("port") or 0, f"{at}.port", found)
        checks.one_of(port.get("protocol"), checks.PROTOCOLS, f"{at}.protocol", found)
        checks.port_number_or_name(port.get("targetPort"), f"{at}.targetPort", found)
        protocol = port.get("appProtocol")
        if protocol is not None:
            checks.told(names.qualified_name_problems(protocol), f"{at}.appProtocol", protocol, found)


def _check_affinity(spec: Object, found: list[Fault]) -> None:
    affinity, config = spec.get("sessionAffinity"), spec.get("sessionAffinityConfig")
    checks.one_of(affinity, ("ClientIP", "None"), "spec.sessionAffinity", found)
    at = "spec.sessionAffinityConfig"
    if affinity == "None" and config is not None:
        found.append(faults.forbidden(at, "must not be set when session affinity is None"))
    if affinity != "ClientIP":
        return
    seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
    if seconds is None:
        found.append(faults.required(at, "when session affinity type is ClientIP"))
    elif not 0 < seconds <= _AFFINITY_LIMIT:
        detail = f"must be greater than 0 and less than {_AFFINITY_LIMIT}"
        found.append(faults.invalid(f"{at}.clientIP.timeoutSeconds", seconds, detail))


def _check_node_ports(kind: str, ports: list[Object], found: list[Fault]) -> None:
    if kind == "ClusterIP":
        for index, port in enumerate(ports):
            if port.get("nodePort"):
                detail = "may not be used when `type` is 'ClusterIP'"
                found.append(faults.forbidden(f"spec.ports[{index}].nodePort", detail))
    node_ports: set[tuple[object, object]] = set()
    own_ports: set[tuple[object, object]] = set()
    repeated: list[Fault] = []
    for index, port in enumerate(ports):
        protocol, node_port = port.get("protocol"), port.get("nodePort")
        if node_port:
            if (protocol, node_port) in node_ports:
                found.append(faults.duplicate(f"spec.ports[{index}].nodePort", node_port))
            node_ports.add((protocol, node_port))
        key = (protocol, port.get("port"))
        if key in own_ports:
            repeated.append(faults.duplicate(f"spec.ports[{index}]", {"port": key[1], "protocol": protocol}))
        own_ports.add(key)
    found += repeated


def _check_source_ranges(spec: Object, annotations: dict[str, str], found: list[Fault]) -> None:
    balancer = spec.get("type") == "LoadBalancer"
    ranges = spec.get("loadBalancerSourceRanges") or ()
    if ranges:
        if not balancer:
            found.append(faults.forbidden("spec.LoadBalancerSourceRanges", _ONLY_BALANCERS))
        for index, text in enumerate(ranges):
            checks.cidr(text.strip(), f"spec.LoadBalancerSourceRanges[{index}]", found)
    elif _SOURCE_RANGES in annotations:
        field = f"metadata.annotations[{_SOURCE_RANGES}]"
        if not balancer:
            found.append(faults.forbidden(field, _ONLY_BALANCERS))
        text = annotations[_SOURCE_RANGES].strip()
        for part in text.split(",") if text else ():
            checks.cidr(part.strip(), field, found)


def _check_balancer_class(spec: Object, found: list[Fault]) -> None:
    name = spec.get("loadBalancerClass")
    if name is None:
        return
    if spec.get("type") == "LoadBalancer":
        checks.told(names.qualified_name_problems(name), "spec.loadBalancerClass", name, found)
    else:
        found.append(faults.forbidden("spec.loadBalancerClass", _ONLY_BALANCERS))


def _check_traffic(service: Object, found: list[Fault]) -> None:
    spec = service["spec"]
    external, health = spec.get("externalTrafficPolicy") or "", spec.get("healthCheckNodePort") or 0
    if is_externally_accessible(service):
        checks.one_of(external, ("Cluster", "Local"), "spec.externalTrafficPolicy", found)
    elif external:
        detail = "may only be set for externally-accessible services"
        found.append(faults.invalid("spec.externalTrafficPolicy", external, detail))
    if not needs_health_check_port(service):
        if health:
            detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            found.append(faults.invalid("spec.healthCheckNodePort", health, detail))
    elif health:
        checks.port_number(health, "spec.healthCheckNodePort", found)
    internal = spec.get("internalTrafficPolicy")
    if internal is None and spec.get("type") in ("NodePort", "LoadBalancer", "ClusterIP"):
        found.append(faults.required("spec.internalTrafficPolicy"))
    checks.choice(internal, ("Cluster", "Local"), "spec.internalTrafficPolicy", found)
    distributions = ("PreferClose", "PreferSameZone", "PreferSameNode")
    checks.choice(spec.get("trafficDistribution"), distributions, "spec.trafficDistribution", found)


def validate_service_update(new: Object, old: Object) -> list[Fault]:
    if refused := family_faults(new):
        return refused
    found: list[Fault] = []
    spec, before = new["spec"], old["spec"]
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        _check_kept_addresses(new, old, found)
        if not is_headless(new) and not is_headless(old):
            families, families_before = spec.get("ipFamilies") or [], before.get("ipFamilies") or []
            if families and families_before and families[0] != families_before[0]:
                found.append(faults.invalid("spec.ipFamilies[0]", families, _ONCE_SET))
    if spec.get("type") == before.get("type") == "LoadBalancer":
        name = spec.get("loadBalancerClass")
        if name != before.get("loadBalancerClass"):
            found.append(faults.invalid("spec.loadBalancerClass", name, _ONCE_SET))
    _check_balancer_class(spec, found)
    both_checked = needs_health_check_port(new) and needs_health_check_port(old)
    if both_checked and spec.get("healthCheckNodePort") != before.get("healthCheckNodePort"):
        found.append(faults.forbidden("spec.healthCheckNodePort", names.IMMUTABLE))
    return found + _faults(new)


def _check_kept_addresses(new: Object, old: Object, found: list[Fault]) -> None:
    if is_headless(new) and is_headless(old):
        return
    addresses, before = new["spec"].get("clusterIPs") or [], old["spec"].get("clusterIPs") or []
    if before and not addresses:
        found.append(faults.invalid("spec.clusterIPs[0]", addresses, "primary clusterIP can not be unset"))
    for index, (address, was) in enumerate(zip(addresses, before, strict=False)):
        if address != was:
            found.append(faults.invalid(f"spec.clusterIPs[{index}]", addresses, _ONCE_SET))


def validate_service_status(new: Object, _old: Object) -> list[Fault]:
    found: list[Fault] = []
    ingress = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    at = "status.loadBalancer.ingress"
    if ingress and new["spec"].get("type") != "LoadBalancer":
        return [faults.forbidden(at, "may only be used when `spec.type` is 'LoadBalancer'")]
    for index, one in enumerate(ingress):
        address, mode, host = one.get("ip") or "", one.get("ipMode"), one.get("hostname") or ""
        if address:
            checks.ip(address, f"{at}[{index}].ip", found)
        if mode is None:
            if address:
                found.append(faults.required(f"{at}[{index}].ipMode", "must be specified when `ip` is set"))
        elif not address:
            found.append(faults.forbidden(f"{at}[{index}].ipMode", "may not be specified when `ip` is not set"))
        else:
            checks.choice(mode, ("Proxy", "VIP"), f"{at}[{index}].ipMode", found)
        if host:
            checks.told(names.subdomain_problems(host), f"{at}[{index}].hostname", host, found)
            if checks.parse_ip(host) is not None:
                detail = "must be a DNS name, not an IP address"
                found.append(faults.invalid(f"{at}[{index}].hostname", host, detail))
    return found
