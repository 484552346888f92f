"""Strategies of IPAddress and ServiceCIDR."""

from __future__ import annotations

import ipaddress

from torchyard.api import checks, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.status_subresource import OBJECT_META, StatusSubresourceStrategy
from torchyard.api.strategy import Strategy


class IPAddressStrategy(Strategy):
    name_rule = "path-segment"
    generation_fields = None

    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        name = obj["metadata"].get("name") or ""
        if checks.parse_ip(name) is None:
            checks.ip(name, "metadata.name", errs)
        parent = (obj.get("spec") or {}).get("parentRef")
        if parent is None:
            errs.append(field_errors.required("spec.parentRef"))
        else:
            needed = [name for name in ("resource", "name") if not parent.get(name)]
            errs += [field_errors.required(f"spec.parentRef.{name}") for name in needed]
            if group := parent.get("group"):
                checks.report_problems(names.subdomain_problems(group), "spec.parentRef.group", group, errs)
            for field in ("resource", "name", "namespace"):
                value = parent.get(field) or ""
                checks.report_problems(names.path_segment_problems(value), f"spec.parentRef.{field}", value, errs)
        return errs

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        checks.immutable(new.get("spec"), old.get("spec"), "spec", errs)
        return errs


class ServiceCIDRStrategy(StatusSubresourceStrategy):
    status_keeps = OBJECT_META
    generation_fields = None

    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        spec = obj.get("spec") or {}
        ranges = spec.get("cidrs") or []
        if not ranges:
            errs.append(field_errors.required("spec.cidrs", "at least one CIDR required"))
        elif len(ranges) > 2:
            errs.append(field_errors.invalid("spec.cidrs", spec, "may only hold up to 2 values"))
        else:
            families = [_check_range(text, f"spec.cidrs[{index}]", errs) for index, text in enumerate(ranges)]
            if not errs and len(set(families)) < len(families):
                detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
                errs.append(field_errors.invalid("spec.cidrs", ranges, detail))
        return errs

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        """Ranges stay; a second family can be added."""
        ranges, before = ((obj.get("spec") or {}).get("cidrs") or [] for obj in (new, old))
        errs: list[FieldError] = []
        for index, (text, earlier) in enumerate(zip(ranges, before, strict=False)):
            checks.immutable(text, earlier, f"spec.cidrs[{index}]", errs)
        if len(ranges) < len(before):
            checks.immutable(ranges, before, "spec.cidrs", errs)
        return errs or (self.validate(new) if ranges != before else [])


def _check_range(text: str, field: str, errs: list[FieldError]) -> int:
    """Check a range; returns its IP version."""
    if not checks.cidr(text, field, errs):
        return 0
    network = ipaddress.ip_network(text, strict=False)
    address = ipaddress.ip_address(text.partition("/")[0])
    if address != network.network_address:
        errs.append(field_errors.invalid(field, text, "must not have bits set beyond the prefix length"))
    elif str(network) != text:
        errs.append(field_errors.invalid(field, text, f'must be in canonical form ("{network}")'))
    return network.version
