"""Strategies of IPAddress and ServiceCIDR. The server stores them but does not allocate addresses by them."""

from __future__ import annotations

import ipaddress

from torchyard.api import checks, field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.status_subresource import StatusSubresourceStrategy
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
        return errs

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        checks.immutable(new.get("spec"), old.get("spec"), "spec", errs)
        return errs


class ServiceCIDRStrategy(StatusSubresourceStrategy):
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
            for index, text in enumerate(ranges):
                field = f"spec.cidrs[{index}]"
                if checks.cidr(text, field, errs):
                    network = ipaddress.ip_network(text, strict=False)
                    if str(network) != text:
                        detail = f'must be in canonical form ("{network}")'
                        errs.append(field_errors.invalid(field, text, detail))
        return errs
