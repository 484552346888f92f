"""IPAddress and ServiceCIDR: upstream's own books of service addresses. Kept, but nothing here is allocated by them."""

from __future__ import annotations

import ipaddress

from torchyard.api import checks, faults
from torchyard.api.behaviour import Behaviour, Object
from torchyard.api.faults import Fault
from torchyard.api.stateful import StatefulBehaviour


class IPAddressBehaviour(Behaviour):
    name_rule = "path-segment"
    generation_fields = None

    def validate(self, obj: Object) -> list[Fault]:
        found: list[Fault] = []
        name = obj["metadata"].get("name") or ""
        if checks.parse_ip(name) is None:
            checks.ip(name, "metadata.name", found)
        parent = (obj.get("spec") or {}).get("parentRef")
        if parent is None:
            found.append(faults.required("spec.parentRef"))
        else:
            needed = [name for name in ("resource", "name") if not parent.get(name)]
            found += [faults.required(f"spec.parentRef.{name}") for name in needed]
        return found

    def validate_update(self, new: Object, old: Object) -> list[Fault]:
        found: list[Fault] = []
        checks.immutable(new.get("spec"), old.get("spec"), "spec", found)
        return found


class ServiceCIDRBehaviour(StatefulBehaviour):
    generation_fields = None

    def validate(self, obj: Object) -> list[Fault]:
        found: list[Fault] = []
        spec = obj.get("spec") or {}
        ranges = spec.get("cidrs") or []
        if not ranges:
            found.append(faults.required("spec.cidrs", "at least one CIDR required"))
        elif len(ranges) > 2:
            found.append(faults.invalid("spec.cidrs", spec, "may only hold up to 2 values"))
        else:
            for index, text in enumerate(ranges):
                field = f"spec.cidrs[{index}]"
                if checks.cidr(text, field, found):
                    network = ipaddress.ip_network(text, strict=False)
                    if str(network) != text:
                        detail = f'must be in canonical form ("{network}")'
                        found.append(faults.invalid(field, text, detail))
        return found
