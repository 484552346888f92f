"""Strategies of the kinds of resource.k8s.io. The server stores them for clients; nothing allocates devices by them."""

from __future__ import annotations

from torchyard.api import checks, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.status_subresource import OBJECT_META, StatusSubresourceStrategy
from torchyard.api.strategy import Strategy


def _default_claim_spec(spec: Object) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for exact in [request.get("exactly"), *(request.get("firstAvailable") or ())]:
            if exact is None:
                continue
            if not exact.get("allocationMode"):
                exact["allocationMode"] = "ExactCount"
            if exact["allocationMode"] == "ExactCount" and not exact.get("count"):
                exact["count"] = 1


def _check_claim_spec(spec: Object, at: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        field, name = f"{at}.devices.requests[{index}]", request.get("name") or ""
        checks.report_problems(names.label_problems(name), f"{field}.name", name, errs)
        if name in seen:
            errs.append(field_errors.duplicate(f"{field}.name", name))
        seen.add(name)
        exact, choices = request.get("exactly"), request.get("firstAvailable")
        if (exact is None) == (not choices):
            detail = "exactly one of `exactly` or `firstAvailable` is required"
            errs.append(field_errors.required(field, detail))
        elif exact is not None and not exact.get("deviceClassName"):
            errs.append(field_errors.required(f"{field}.exactly.deviceClassName"))


class DeviceClassStrategy(Strategy):
    returns_deleted = True

    def prepare_create(self, obj: Object) -> None:
        # behind a feature gate that Kubernetes 1.34 disables by default
        (obj.get("spec") or {}).pop("extendedResourceName", None)

    def prepare_update(self, new: Object, old: Object) -> None:
        self.prepare_create(new)

    def validate(self, obj: Object) -> list[FieldError]:
        selectors = (obj.get("spec") or {}).get("selectors") or ()
        return [
            field_errors.required(f"spec.selectors[{index}].cel")
            for index, selector in enumerate(selectors)
            if not selector.get("cel")
        ]


class ResourceClaimStrategy(StatusSubresourceStrategy):
    status_keeps = OBJECT_META
    returns_deleted = True
    generation_fields = None

    def default(self, obj: Object) -> None:
        _default_claim_spec(obj.setdefault("spec", {}))

    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        _check_claim_spec(obj["spec"], "spec", errs)
        return errs

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        checks.immutable(new.get("spec"), old.get("spec"), "spec", errs)
        return errs


class ResourceClaimTemplateStrategy(Strategy):
    returns_deleted = True
    generation_fields = None

    def default(self, obj: Object) -> None:
        _default_claim_spec(obj.setdefault("spec", {}).setdefault("spec", {}))

    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        _check_claim_spec(obj["spec"]["spec"], "spec.spec", errs)
        return errs

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        checks.immutable(new.get("spec"), old.get("spec"), "spec", errs)
        return errs


class ResourceSliceStrategy(Strategy):
    returns_deleted = True

    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        spec = obj.get("spec") or {}
        driver, pool = spec.get("driver") or "", spec.get("pool") or {}
        if not driver:
            errs.append(field_errors.required("spec.driver"))
        checks.report_problems(names.subdomain_problems(driver.lower()), "spec.driver", driver, errs)
        if not pool.get("name"):
            errs.append(field_errors.required("spec.pool.name"))
        count = pool.get("resourceSliceCount") or 0
        if count <= 0:
            errs.append(field_errors.invalid("spec.pool.resourceSliceCount", count, checks.NOT_POSITIVE))
        nodes = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
        if sum(bool(spec.get(name)) for name in nodes) != 1:
            listed = ", ".join(f"`{name}`" for name in nodes)
            errs.append(field_errors.required("spec", f"exactly one of {listed} is required"))
        return errs

    def selectable(self, obj: Object) -> dict[str, str]:
        spec = obj.get("spec") or {}
        return {"spec.driver": spec.get("driver") or "", "spec.nodeName": spec.get("nodeName") or ""}
