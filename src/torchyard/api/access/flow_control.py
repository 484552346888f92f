"""Strategies of flow control.

The server stores these kinds for clients that use them but does not act on them, so only their form is validated.
"""

from __future__ import annotations

from torchyard.api import checks, field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.status_subresource import OBJECT_META, StatusSubresourceStrategy


class FlowSchemaStrategy(StatusSubresourceStrategy):
    status_keeps = (*OBJECT_META, "generateName")  # upstream resets all of the metadata

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if not spec.get("matchingPrecedence"):
            spec["matchingPrecedence"] = 1000

    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        spec = obj["spec"]
        precedence = spec["matchingPrecedence"]
        if precedence <= 0:
            errs.append(field_errors.invalid("spec.matchingPrecedence", precedence, "must be a positive value"))
        if precedence > 10000:
            detail = "must not be greater than 10000"
            errs.append(field_errors.invalid("spec.matchingPrecedence", precedence, detail))
        if not (spec.get("priorityLevelConfiguration") or {}).get("name"):
            detail = "must reference a priority level"
            errs.append(field_errors.required("spec.priorityLevelConfiguration.name", detail))
        return errs


class PriorityLevelConfigurationStrategy(StatusSubresourceStrategy):
    status_keeps = (*OBJECT_META, "generateName")  # upstream resets all of the metadata

    def default(self, obj: Object) -> None:
        limited = obj.setdefault("spec", {}).get("limited")
        if limited is not None:
            for name, value in (("nominalConcurrencyShares", 30), ("lendablePercent", 0)):
                if limited.get(name) is None:
                    limited[name] = value
            queuing = (limited.get("limitResponse") or {}).get("queuing")
            if queuing is not None:
                for name, value in (("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)):
                    if not queuing.get(name):
                        queuing[name] = value

    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        spec = obj["spec"]
        kind = spec.get("type") or ""
        checks.optional_enum(kind, ("Exempt", "Limited"), "spec.type", errs)
        if kind == "Limited":
            if spec.get("limited") is None:
                errs.append(field_errors.required("spec.limited", "must not be empty when type is Limited"))
            else:
                response = (spec["limited"].get("limitResponse") or {}).get("type") or ""
                checks.optional_enum(response, ("Queue", "Reject"), "spec.limited.limitResponse.type", errs)
        return errs
