"""Validation of Ingresses, IngressClasses and NetworkPolicies."""

from __future__ import annotations

import ipaddress

from torchyard.api import checks, field_errors, names, selectors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_CONTROLLER_LENGTH = 250
_BAD_PARTS = ("//", "/./", "/../", "%2f", "%2F")
_BAD_ENDS = ("/..", "/.")
_CLASS_ANNOTATION = "kubernetes.io/ingress.class"


def validate_ingress(ingress: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    annotations = ingress["metadata"].get("annotations") or {}
    _check_ingress_spec(ingress.get("spec") or {}, errs)
    own, named = annotations.get(_CLASS_ANNOTATION), (ingress.get("spec") or {}).get("ingressClassName")
    if own is not None and named is not None and own != named:
        detail = "must match `ingressClassName` when both are specified"
        errs.append(field_errors.invalid(f"annotations.{_CLASS_ANNOTATION}", own, detail))
    return errs


def validate_ingress_update(new: Object, _old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    _check_ingress_spec(new.get("spec") or {}, errs)
    return errs


def _check_ingress_spec(spec: Object, errs: list[FieldError]) -> None:
    rules, backend, name = spec.get("rules") or [], spec.get("defaultBackend"), spec.get("ingressClassName")
    if not rules and backend is None:
        detail = "either `defaultBackend` or `rules` must be specified"
        errs.append(field_errors.invalid("spec", None, detail))
    if backend is not None:
        _check_backend(backend, "spec.defaultBackend", errs)
    for index, rule in enumerate(rules):
        _check_rule(rule, f"spec.rules[{index}]", errs)
    for index, tls in enumerate(spec.get("tls") or ()):
        at = f"spec.tls[{index}]"
        for number, host in enumerate(tls.get("hosts") or ()):
            _check_host(host, f"{at}.hosts[{number}]", errs)
        if secret := tls.get("secretName"):
            checks.report_problems(names.subdomain_problems(secret), f"{at}.secretName", secret, errs)
    if name is not None:
        checks.report_problems(names.subdomain_problems(name), "spec.ingressClassName", name, errs)


def _check_host(host: str, field: str, errs: list[FieldError]) -> None:
    if "*" in host:
        if not host.startswith("*.") or names.subdomain_problems(host[2:]):
            detail = (
                "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must "
                "consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character "
                "(e.g. '*.example.com', regex used for validation is "
                "'\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            )
            errs.append(field_errors.invalid(field, host, detail))
    else:
        checks.report_problems(names.subdomain_problems(host), field, host, errs)


def _check_rule(rule: Object, at: str, errs: list[FieldError]) -> None:
    host, http = rule.get("host") or "", rule.get("http")
    if host:
        if checks.parse_ip(host) is not None:
            errs.append(field_errors.invalid(f"{at}.host", host, "must be a DNS name, not an IP address"))
        _check_host(host, f"{at}.host", errs)
    if http is None:
        return
    paths = http.get("paths") or []
    if not paths:
        errs.append(field_errors.required(f"{at}.http.paths"))
    for index, path in enumerate(paths):
        _check_path(path, f"{at}.http.paths[{index}]", errs)


def _check_path(entry: Object, at: str, errs: list[FieldError]) -> None:
    kind, path = entry.get("pathType"), entry.get("path") or ""
    if kind is None:
        errs.append(field_errors.required(f"{at}.pathType", "pathType must be specified"))
        return
    if kind in ("Exact", "Prefix"):
        if not path.startswith("/"):
            errs.append(field_errors.invalid(f"{at}.path", path, "must be an absolute path"))
        if path:
            wrong = [part for part in _BAD_PARTS if part in path]
            errs.extend(field_errors.invalid(f"{at}.path", path, f"must not contain '{part}'") for part in wrong)
            ends = [end for end in _BAD_ENDS if path.endswith(end)]
            errs.extend(field_errors.invalid(f"{at}.path", path, f"cannot end with '{end}'") for end in ends)
    elif kind == "ImplementationSpecific":
        if path and not path.startswith("/"):
            errs.append(field_errors.invalid(f"{at}.path", path, "must be an absolute path"))
    else:
        errs.append(field_errors.not_supported(f"{at}.pathType", kind, _PATH_TYPES))
    _check_backend(entry.get("backend") or {}, f"{at}.backend", errs)


def _check_backend(backend: Object, at: str, errs: list[FieldError]) -> None:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        errs.append(field_errors.invalid(at, "", "cannot set both resource and service backends"))
    elif resource is not None:
        if group := resource.get("apiGroup"):
            checks.report_problems(names.subdomain_problems(group), f"{at}.resource.apiGroup", group, errs)
        for name in ("kind", "name"):
            if not resource.get(name):
                errs.append(field_errors.required(f"{at}.resource.{name}"))
    elif service is not None:
        _check_backend_service(service, at, errs)
    else:
        errs.append(field_errors.invalid(at, "", "resource or service backend is required"))


def _check_backend_service(service: Object, at: str, errs: list[FieldError]) -> None:
    name, port = service.get("name") or "", service.get("port") or {}
    if not name:
        errs.append(field_errors.required(f"{at}.service.name"))
    else:
        checks.report_problems(names.dns1035_problems(name), f"{at}.service.name", name, errs)
    number, port_name = port.get("number") or 0, port.get("name") or ""
    if number and port_name:
        errs.append(field_errors.invalid(at, "", "cannot set both port name & port number"))
    elif port_name:
        checks.report_problems(checks.port_name_problems(port_name), f"{at}.service.port.name", port_name, errs)
    elif number:
        checks.port_number(number, f"{at}.service.port.number", errs)
    else:
        errs.append(field_errors.required(at, "port name or number is required"))


def validate_ingress_class(ingress_class: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = ingress_class.get("spec") or {}
    controller = spec.get("controller") or ""
    if len(controller) > _CONTROLLER_LENGTH:
        errs.append(field_errors.too_long("spec.controller", _CONTROLLER_LENGTH))
    checks.domain_path(controller, "spec.controller", errs)
    if (parameters := spec.get("parameters")) is not None:
        _check_parameters(parameters, "spec.parameters", errs)
    return errs


def _check_parameters(parameters: Object, at: str, errs: list[FieldError]) -> None:
    if (group := parameters.get("apiGroup")) is not None:
        checks.report_problems(names.subdomain_problems(group), f"{at}.apiGroup", group, errs)
    for name in ("kind", "name"):
        value = parameters.get(name) or ""
        if not value:
            errs.append(field_errors.required(f"{at}.{name}"))
        else:
            checks.report_problems(names.path_segment_problems(value), f"{at}.{name}", value, errs)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        errs.append(field_errors.required(f"{at}.scope"))
    else:
        checks.optional_enum(scope, ("Cluster", "Namespace"), f"{at}.scope", errs)
    if scope == "Namespace":
        if not namespace:
            errs.append(field_errors.required(f"{at}.namespace", "`parameters.scope` is set to 'Namespace'"))
        else:
            checks.report_problems(names.label_problems(namespace), f"{at}.namespace", namespace, errs)
    elif scope == "Cluster" and namespace is not None:
        errs.append(field_errors.forbidden(f"{at}.namespace", "`parameters.scope` is set to 'Cluster'"))


def validate_ingress_class_update(new: Object, old: Object) -> list[FieldError]:
    errs = validate_ingress_class(new)
    controller = (new.get("spec") or {}).get("controller")
    checks.immutable(controller, (old.get("spec") or {}).get("controller"), "spec.controller", errs)
    return errs


def validate_network_policy(policy: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = policy.get("spec") or {}
    errs += selectors.validate_object(spec.get("podSelector"), "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            at = f"spec.{direction}[{index}]"
            for number, port in enumerate(rule.get("ports") or ()):
                _check_policy_port(port, f"{at}.ports[{number}]", errs)
            for number, peer in enumerate(rule.get(peers) or ()):
                _check_peer(peer, f"{at}.{peers}[{number}]", errs)
    types = spec.get("policyTypes") or []
    if len(types) > 2:
        errs.append(field_errors.invalid("spec.policyTypes", types, "may not specify more than two policyTypes"))
    else:
        for index, kind in enumerate(types):
            checks.optional_enum(kind, ("Ingress", "Egress"), f"spec.policyTypes[{index}]", errs)
    return errs


def _check_policy_port(entry: Object, at: str, errs: list[FieldError]) -> None:
    port, end = entry.get("port"), entry.get("endPort")
    checks.optional_enum(entry.get("protocol"), ("TCP", "UDP", "SCTP"), f"{at}.protocol", errs)
    if port is not None:
        checks.port_number_or_name(port, f"{at}.port", errs)
    if end is None:
        return
    if port is None:
        errs.append(field_errors.invalid(f"{at}.endPort", end, "may not be specified when `port` is not specified"))
    elif isinstance(port, str):
        errs.append(field_errors.invalid(f"{at}.endPort", end, "may not be specified when `port` is non-numeric"))
    else:
        if end < port:
            errs.append(field_errors.invalid(f"{at}.endPort", port, "must be greater than or equal to `port`"))
        if not 1 <= end <= 65535:
            checks.port_number(end, f"{at}.endPort", errs)


def _check_peer(peer: Object, at: str, errs: list[FieldError]) -> None:
    count = 0
    for kind in ("podSelector", "namespaceSelector"):
        if peer.get(kind) is not None:
            count += 1
            errs += selectors.validate_object(peer[kind], f"{at}.{kind}")
    if (block := peer.get("ipBlock")) is not None:
        count += 1
        _check_block(block, f"{at}.ipBlock", errs)
    if count == 0:
        errs.append(field_errors.required(at, "must specify a peer"))
    elif count > 1 and block is not None:
        errs.append(field_errors.forbidden(at, "may not specify both ipBlock and another peer"))


def _check_block(block: Object, at: str, errs: list[FieldError]) -> None:
    text = block.get("cidr") or ""
    if not text:
        errs.append(field_errors.required(f"{at}.cidr"))
        return
    if not checks.cidr(text, f"{at}.cidr", errs):
        return
    network = ipaddress.ip_network(text, strict=False)
    for index, part in enumerate(block.get("except") or ()):
        field = f"{at}.except[{index}]"
        if not checks.cidr(part, field, errs):
            continue
        excluded = ipaddress.ip_network(part, strict=False)
        inside = excluded.version == network.version and excluded.prefixlen > network.prefixlen
        if not inside or excluded.network_address not in network:
            errs.append(field_errors.invalid(field, part, "must be a strict subset of `cidr`"))
