"""Validation of Services on create and update."""

from __future__ import annotations

from torchyard.api import checks, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.service.allocation import (
    check_cluster_ips,
    family_errors,
    is_externally_accessible,
    is_headless,
    needs_health_check_port,
)

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
_TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"
_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_AFFINITY_LIMIT = 86400
_ONLY_LOAD_BALANCERS = "may only be used when `type` is 'LoadBalancer'"
_ONCE_SET = "may not change once set"


def validate_service(service: Object) -> list[FieldError]:
    """Validate a Service before its addresses and ports are allocated."""
    return family_errors(service) or _errors(service)


def _errors(service: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = service["spec"]
    kind, ports, headless = spec.get("type") or "", spec.get("ports") or [], is_headless(service)
    annotations = service["metadata"].get("annotations") or {}
    mode, hints = annotations.get(_TOPOLOGY_MODE), annotations.get(_TOPOLOGY_HINTS)
    if mode is not None and hints is not None and mode != hints:
        detail = f"must match annotations[{_TOPOLOGY_HINTS}] when both are specified"
        errs.append(field_errors.invalid(f"metadata.annotations[{_TOPOLOGY_MODE}]", mode, detail))
    if not ports and not headless and kind != "ExternalName":
        errs.append(field_errors.required("spec.ports"))
    if kind in ("LoadBalancer", "NodePort") and headless:
        detail = f"may not be set to 'None' for {kind} services"
        errs.append(field_errors.invalid("spec.clusterIPs[0]", "None", detail))
    if kind == "ExternalName":
        _check_external_name(spec, errs)
    _check_ports(ports, errs)
    errs += names.validate_labels(spec.get("selector"), "spec.selector")
    _check_affinity(spec, errs)
    if kind != "ExternalName":
        check_cluster_ips(service, errs)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        field = f"spec.externalIPs[{index}]"
        if checks.ip(address, field, errs):
            checks.non_special_ip(address, field, errs)
    checks.required_enum(kind, _TYPES, "spec.type", errs)
    _check_node_ports(kind, ports, errs)
    _check_source_ranges(spec, annotations, errs)
    if spec.get("allocateLoadBalancerNodePorts") is not None and kind != "LoadBalancer":
        errs.append(field_errors.forbidden("spec.allocateLoadBalancerNodePorts", _ONLY_LOAD_BALANCERS))
    if spec.get("allocateLoadBalancerNodePorts") is None and kind == "LoadBalancer":
        errs.append(field_errors.required("allocateLoadBalancerNodePorts"))
    _check_load_balancer_class(spec, errs)
    _check_traffic(service, errs)
    return errs


def _check_external_name(spec: Object, errs: list[FieldError]) -> None:
    for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(name):
            errs.append(field_errors.forbidden(f"spec.{name}", "may not be set for ExternalName services"))
    name = (spec.get("externalName") or "").removesuffix(".")
    if name:
        checks.report_problems(names.subdomain_problems(name), "spec.externalName", name, errs)
    else:
        errs.append(field_errors.required("spec.externalName"))


def _check_ports(ports: list[Object], errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at, name = f"spec.ports[{index}]", port.get("name") or ""
        if not name:
            if len(ports) > 1:
                errs.append(field_errors.required(f"{at}.name"))
        else:
            checks.report_problems(names.label_problems(name), f"{at}.name", name, errs)
            if name in seen:
                errs.append(field_errors.duplicate(f"{at}.name", name))
            seen.add(name)
        checks.port_number(port.get("port") or 0, f"{at}.port", errs)
        checks.required_enum(port.get("protocol"), checks.PROTOCOLS, f"{at}.protocol", errs)
        checks.port_number_or_name(port.get("targetPort"), f"{at}.targetPort", errs)
        protocol = port.get("appProtocol")
        if protocol is not None:
            checks.report_problems(names.qualified_name_problems(protocol), f"{at}.appProtocol", protocol, errs)


def _check_affinity(spec: Object, errs: list[FieldError]) -> None:
    affinity, config = spec.get("sessionAffinity"), spec.get("sessionAffinityConfig")
    checks.required_enum(affinity, ("ClientIP", "None"), "spec.sessionAffinity", errs)
    at = "spec.sessionAffinityConfig"
    if affinity == "None" and config is not None:
        errs.append(field_errors.forbidden(at, "must not be set when session affinity is None"))
    if affinity != "ClientIP":
        return
    seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
    if seconds is None:
        errs.append(field_errors.required(at, "when session affinity type is ClientIP"))
    elif not 0 < seconds <= _AFFINITY_LIMIT:
        detail = f"must be greater than 0 and less than {_AFFINITY_LIMIT}"
        errs.append(field_errors.invalid(f"{at}.clientIP.timeoutSeconds", seconds, detail))


def _check_node_ports(kind: str, ports: list[Object], errs: list[FieldError]) -> None:
    if kind == "ClusterIP":
        for index, port in enumerate(ports):
            if port.get("nodePort"):
                detail = "may not be used when `type` is 'ClusterIP'"
                errs.append(field_errors.forbidden(f"spec.ports[{index}].nodePort", detail))
    node_ports: set[tuple[object, object]] = set()
    own_ports: set[tuple[object, object]] = set()
    repeated: list[FieldError] = []
    for index, port in enumerate(ports):
        protocol, node_port = port.get("protocol"), port.get("nodePort")
        if node_port:
            if (protocol, node_port) in node_ports:
                errs.append(field_errors.duplicate(f"spec.ports[{index}].nodePort", node_port))
            node_ports.add((protocol, node_port))
        key = (protocol, port.get("port"))
        if key in own_ports:
            repeated.append(field_errors.duplicate(f"spec.ports[{index}]", {"port": key[1], "protocol": protocol}))
        own_ports.add(key)
    errs += repeated


def _check_source_ranges(spec: Object, annotations: dict[str, str], errs: list[FieldError]) -> None:
    balancer = spec.get("type") == "LoadBalancer"
    ranges = spec.get("loadBalancerSourceRanges") or ()
    if ranges:
        if not balancer:
            errs.append(field_errors.forbidden("spec.LoadBalancerSourceRanges", _ONLY_LOAD_BALANCERS))
        for index, text in enumerate(ranges):
            checks.cidr(text.strip(), f"spec.LoadBalancerSourceRanges[{index}]", errs)
    elif _SOURCE_RANGES in annotations:
        field = f"metadata.annotations[{_SOURCE_RANGES}]"
        if not balancer:
            errs.append(field_errors.forbidden(field, _ONLY_LOAD_BALANCERS))
        text = annotations[_SOURCE_RANGES].strip()
        for part in text.split(",") if text else ():
            checks.cidr(part.strip(), field, errs)


def _check_load_balancer_class(spec: Object, errs: list[FieldError]) -> None:
    name = spec.get("loadBalancerClass")
    if name is None:
        return
    if spec.get("type") == "LoadBalancer":
        checks.report_problems(names.qualified_name_problems(name), "spec.loadBalancerClass", name, errs)
    else:
        errs.append(field_errors.forbidden("spec.loadBalancerClass", _ONLY_LOAD_BALANCERS))


def _check_traffic(service: Object, errs: list[FieldError]) -> None:
    spec = service["spec"]
    external, health = spec.get("externalTrafficPolicy") or "", spec.get("healthCheckNodePort") or 0
    if is_externally_accessible(service):
        checks.required_enum(external, ("Cluster", "Local"), "spec.externalTrafficPolicy", errs)
    elif external:
        detail = "may only be set for externally-accessible services"
        errs.append(field_errors.invalid("spec.externalTrafficPolicy", external, detail))
    if not needs_health_check_port(service):
        if health:
            detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            errs.append(field_errors.invalid("spec.healthCheckNodePort", health, detail))
    elif health:
        checks.port_number(health, "spec.healthCheckNodePort", errs)
    internal = spec.get("internalTrafficPolicy")
    if internal is None and spec.get("type") in ("NodePort", "LoadBalancer", "ClusterIP"):
        errs.append(field_errors.required("spec.internalTrafficPolicy"))
    checks.optional_enum(internal, ("Cluster", "Local"), "spec.internalTrafficPolicy", errs)
    distributions = ("PreferClose", "PreferSameZone", "PreferSameNode")
    checks.optional_enum(spec.get("trafficDistribution"), distributions, "spec.trafficDistribution", errs)


def validate_service_update(new: Object, old: Object) -> list[FieldError]:
    if refused := family_errors(new):
        return refused
    errs: list[FieldError] = []
    spec, before = new["spec"], old["spec"]
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        _check_kept_addresses(new, old, errs)
        if not is_headless(new) and not is_headless(old):
            families, families_before = spec.get("ipFamilies") or [], before.get("ipFamilies") or []
            if families and families_before and families[0] != families_before[0]:
                errs.append(field_errors.invalid("spec.ipFamilies[0]", families, _ONCE_SET))
    if spec.get("type") == before.get("type") == "LoadBalancer":
        name = spec.get("loadBalancerClass")
        if name != before.get("loadBalancerClass"):
            errs.append(field_errors.invalid("spec.loadBalancerClass", name, _ONCE_SET))
    _check_load_balancer_class(spec, errs)
    both_checked = needs_health_check_port(new) and needs_health_check_port(old)
    if both_checked and spec.get("healthCheckNodePort") != before.get("healthCheckNodePort"):
        errs.append(field_errors.forbidden("spec.healthCheckNodePort", names.IMMUTABLE))
    return errs + _errors(new)


def _check_kept_addresses(new: Object, old: Object, errs: list[FieldError]) -> None:
    if is_headless(new) and is_headless(old):
        return
    addresses, before = new["spec"].get("clusterIPs") or [], old["spec"].get("clusterIPs") or []
    if before and not addresses:
        errs.append(field_errors.invalid("spec.clusterIPs[0]", addresses, "primary clusterIP can not be unset"))
    for index, (address, was) in enumerate(zip(addresses, before, strict=False)):
        if address != was:
            errs.append(field_errors.invalid(f"spec.clusterIPs[{index}]", addresses, _ONCE_SET))


def validate_service_status(new: Object, _old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    ingress = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    at = "status.loadBalancer.ingress"
    if ingress and new["spec"].get("type") != "LoadBalancer":
        return [field_errors.forbidden(at, "may only be used when `spec.type` is 'LoadBalancer'")]
    for index, entry in enumerate(ingress):
        address, mode, host = entry.get("ip") or "", entry.get("ipMode"), entry.get("hostname") or ""
        if address:
            checks.ip(address, f"{at}[{index}].ip", errs)
        if mode is None:
            if address:
                errs.append(field_errors.required(f"{at}[{index}].ipMode", "must be specified when `ip` is set"))
        elif not address:
            errs.append(field_errors.forbidden(f"{at}[{index}].ipMode", "may not be specified when `ip` is not set"))
        else:
            checks.optional_enum(mode, ("Proxy", "VIP"), f"{at}[{index}].ipMode", errs)
        if host:
            checks.report_problems(names.subdomain_problems(host), f"{at}[{index}].hostname", host, errs)
            if checks.parse_ip(host) is not None:
                detail = "must be a DNS name, not an IP address"
                errs.append(field_errors.invalid(f"{at}[{index}].hostname", host, detail))
    return errs
