"""Rules for the addresses and ports of a Service: which are needed, which carry over, which may be requested.

Pure functions: the API server owns the ranges and allocates after validation. The cluster is single-stack IPv4.
"""

from __future__ import annotations

from torchyard.api import checks, field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

FAMILY = "IPv4"
HEADLESS = "None"


def is_headless(service: Object) -> bool:
    return (service["spec"].get("clusterIPs") or []) == [HEADLESS]


def needs_cluster_ip(service: Object) -> bool:
    """Whether this type of service has a cluster IP."""
    return bool(service["spec"].get("type") != "ExternalName")


def needs_node_ports(service: Object) -> bool:
    spec = service["spec"]
    if spec.get("type") == "NodePort":
        return True
    return spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False


def needs_health_check_port(service: Object) -> bool:
    spec = service["spec"]
    return (spec.get("type"), spec.get("externalTrafficPolicy")) == ("LoadBalancer", "Local")


def is_externally_accessible(service: Object) -> bool:
    spec = service["spec"]
    if spec.get("type") in ("LoadBalancer", "NodePort"):
        return True
    return spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs"))


def fill_families(service: Object) -> None:
    """Make `clusterIP` and `clusterIPs` agree, and set families and policy as the cluster has them."""
    spec = service["spec"]
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if not needs_cluster_ip(service):
        return
    free_headless = is_headless(service) and not spec.get("selector")
    if spec.get("ipFamilyPolicy") is None:
        spec["ipFamilyPolicy"] = "RequireDualStack" if free_headless and not spec.get("ipFamilies") else "SingleStack"
    if not spec.get("ipFamilies"):
        address = checks.parse_ip(spec.get("clusterIP") or "")
        spec["ipFamilies"] = [FAMILY if address is None else f"IPv{address.version}"]
    if free_headless and spec["ipFamilyPolicy"] != "SingleStack" and len(spec["ipFamilies"]) == 1:
        spec["ipFamilies"] = [*spec["ipFamilies"], "IPv6" if spec["ipFamilies"][0] == "IPv4" else "IPv4"]


def family_errors(service: Object) -> list[FieldError]:
    """Return errors about families that the cluster does not have. They are reported first, without any others."""
    spec = service["spec"]
    errs: list[FieldError] = []
    if spec.get("type") == "ExternalName":
        return errs
    check_cluster_ips(service, errs)
    if errs:
        return errs
    families, policy = spec.get("ipFamilies") or [], spec.get("ipFamilyPolicy")
    if is_headless(service) and not spec.get("selector"):
        # the families of a headless service without a selector are free
        return errs
    for index, address in enumerate(spec.get("clusterIPs") or ()):
        parsed = checks.parse_ip(address)
        if parsed is not None and parsed.version == 6:
            detail = "IPv6 is not configured on this cluster"
            errs.append(
                field_errors.invalid(
                    f"spec.clusterIPs[{index}]", spec["clusterIPs"][: field_errors.MAX_ITEMS_SHOWN], detail
                )
            )
    if errs:
        return errs
    if len(families) > 1 and policy == "SingleStack":
        detail = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"
        return [field_errors.invalid("spec.ipFamilyPolicy", policy, detail)]
    if policy == "RequireDualStack":
        detail = "this cluster is not configured for dual-stack services"
        return [field_errors.invalid("spec.ipFamilyPolicy", policy, detail)]
    detail = "not configured on this cluster"
    errs.extend(
        field_errors.invalid(f"spec.ipFamilies[{index}]", family, detail)
        for index, family in enumerate(families)
        if family != FAMILY
    )
    return errs


def carry_over(new: Object, old: Object) -> None:
    """Restore allocated values that the client omitted."""
    spec, before = new["spec"], old["spec"]
    if needs_cluster_ip(new) and needs_cluster_ip(old):
        if not spec.get("clusterIP") and before.get("clusterIP"):
            spec["clusterIP"] = before["clusterIP"]
        if not spec.get("clusterIPs") and before.get("clusterIPs") and spec.get("clusterIP") == before.get("clusterIP"):
            spec["clusterIPs"] = list(before["clusterIPs"])
    if is_headless(new) and is_headless(old):
        # families and policy stay as decided on create
        for name in ("ipFamilies", "ipFamilyPolicy"):
            if not spec.get(name) and before.get(name):
                spec[name] = before[name]
    if needs_node_ports(new) and needs_node_ports(old):
        _carry_node_ports(spec.get("ports") or [], before.get("ports") or [])
    checked = needs_health_check_port(new) and needs_health_check_port(old)
    if checked and before.get("healthCheckNodePort") and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = before["healthCheckNodePort"]
    if spec.get("clusterIP") != before.get("clusterIP") and spec.get("clusterIPs") == before.get("clusterIPs"):
        # only the old field was changed
        spec["clusterIPs"] = [spec["clusterIP"]] if spec.get("clusterIP") else []


def _carry_node_ports(ports: list[Object], before: list[Object]) -> None:
    taken = {port.get("nodePort") for port in ports}
    for port in ports:
        if port.get("nodePort"):
            continue
        for old in before:
            same = all(port.get(name) == old.get(name) for name in ("protocol", "port"))
            if same and old.get("nodePort") and old["nodePort"] not in taken:
                port["nodePort"] = old["nodePort"]
                taken.add(old["nodePort"])
                break


def drop_type_dependent_fields(new: Object, old: Object) -> None:
    """Drop the fields of the old type that the user did not change, when the type changes."""
    spec, before = new["spec"], old["spec"]
    has_lost_address = needs_cluster_ip(old) and not needs_cluster_ip(new)
    if has_lost_address and _is_unchanged(spec, before, "clusterIP", "clusterIPs"):
        for name in ("clusterIP", "clusterIPs"):
            spec.pop(name, None)
    if needs_node_ports(old) and not needs_node_ports(new):
        for port, was in zip(spec.get("ports") or (), before.get("ports") or (), strict=False):
            if port.get("nodePort") == was.get("nodePort"):
                port.pop("nodePort", None)
    gone = [
        ("healthCheckNodePort", needs_health_check_port(old) and not needs_health_check_port(new)),
        ("allocateLoadBalancerNodePorts", _was_load_balancer(new, old)),
        ("loadBalancerClass", _was_load_balancer(new, old)),
        ("externalTrafficPolicy", is_externally_accessible(old) and not is_externally_accessible(new)),
        ("internalTrafficPolicy", has_lost_address),
        ("ipFamilies", has_lost_address),
        ("ipFamilyPolicy", has_lost_address),
    ]
    for name, applies in gone:
        if applies and _is_unchanged(spec, before, name):
            spec.pop(name, None)


def _was_load_balancer(new: Object, old: Object) -> bool:
    return bool(old["spec"].get("type") == "LoadBalancer" and new["spec"].get("type") != "LoadBalancer")


def _is_unchanged(spec: Object, before: Object, *names: str) -> bool:
    return all(spec.get(name) == before.get(name) for name in names)


def check_cluster_ips(service: Object, errs: list[FieldError]) -> None:  # noqa: C901, PLR0912 - upstream's order of checks decides which error comes first
    """Check `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` for consistency."""
    spec = service["spec"]
    addresses, families = spec.get("clusterIPs") or [], spec.get("ipFamilies") or []
    at = "spec.clusterIPs"
    if spec.get("clusterIP"):
        if not addresses:
            errs.append(field_errors.required(at))
        elif addresses[0] != spec["clusterIP"]:
            errs.append(field_errors.invalid(at, addresses, "first value must match `clusterIP`"))
    elif addresses:
        errs.append(field_errors.invalid(at, addresses, "must be empty when `clusterIP` is not specified"))
    for index, (family, is_repeated) in enumerate(zip(families, checks.repetitions(families), strict=True)):
        checks.optional_enum(family, ("IPv4", "IPv6"), f"spec.ipFamilies[{index}]", errs)
        if is_repeated:
            errs.append(field_errors.duplicate(f"spec.ipFamilies[{index}]", family))
    policies = ("PreferDualStack", "RequireDualStack", "SingleStack")
    checks.optional_enum(spec.get("ipFamilyPolicy"), policies, "spec.ipFamilyPolicy", errs)
    invalid = False
    for index, address in enumerate(addresses):
        if index == 0 and address == HEADLESS:
            if len(addresses) > 1:
                invalid = True
                errs.append(field_errors.invalid(at, addresses, "'None' must be the first and only value"))
        elif not checks.ip(address, f"{at}[{index}]", errs):
            invalid = True
    if len(addresses) > 2:
        errs.append(field_errors.invalid(at, addresses, "may only hold up to 2 values"))
    if invalid:
        return
    versions = [getattr(checks.parse_ip(address), "version", 0) for address in addresses]
    if len(addresses) > 1 and len(set(versions)) < 2:
        errs.append(field_errors.invalid(at, addresses, "may specify no more than one IP for each IP family"))
    if not is_headless(service):
        for index, (version, family) in enumerate(zip(versions, families, strict=False)):
            if family in ("IPv4", "IPv6") and version != int(family[-1]):
                detail = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
                errs.append(field_errors.invalid(f"{at}[{index}]", addresses[index], detail))
