"""Strategies of Services, endpoints, ingresses and network policies."""

from __future__ import annotations

from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.service import defaults, endpoints, ingress, validation
from torchyard.api.service.allocation import carry_over, drop_type_dependent_fields, fill_families
from torchyard.api.status_subresource import StatusSubresourceStrategy
from torchyard.api.strategy import Strategy


def _fields_ignored_when_headless(spec: Object) -> list[str]:
    ignored = [f"spec.{field}" for field in ("loadBalancerIP", "externalIPs") if spec.get(field)]
    # with a capital letter, as in upstream
    return ignored if spec.get("sessionAffinity") == "None" else [*ignored, "spec.SessionAffinity"]


class ServiceStrategy(StatusSubresourceStrategy):
    """The server allocates addresses and ports after validation; see `service.allocation`."""

    validates_prefix_on_update = True
    name_rule = "service"
    create_on_update = True
    returns_deleted = True
    generation_fields = None

    def default(self, obj: Object) -> None:
        defaults.default_service(obj)

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"loadBalancer": {}}
        fill_families(obj)

    def prepare_update(self, new: Object, old: Object) -> None:
        super().prepare_update(new, old)
        drop_type_dependent_fields(new, old)
        carry_over(new, old)
        fill_families(new)

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_service(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_service_update(new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_service_status(new, old)

    def warnings(self, obj: Object) -> list[str]:
        spec = obj["spec"]
        warnings = []
        if "service.kubernetes.io/topology-aware-hints" in (obj["metadata"].get("annotations") or {}):
            warnings.append(
                "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use "
                "service.kubernetes.io/topology-mode instead"
            )
        external = spec.get("type") == "ExternalName"
        if spec.get("externalName") and not external:
            warnings.append('spec.externalName is ignored when spec.type is not "ExternalName"')
        if spec.get("externalIPs") and external:
            warnings.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
        if spec.get("clusterIP") == "None":
            warnings += [f"{field} is ignored for headless services" for field in _fields_ignored_when_headless(spec)]
        return warnings

    def selectable(self, obj: Object) -> dict[str, str]:
        spec = obj.get("spec") or {}
        return {"spec.clusterIP": spec.get("clusterIP") or "", "spec.type": spec.get("type") or ""}


class EndpointsStrategy(Strategy):
    validates_prefix_on_update = True
    create_on_update = True
    generation_fields = None

    def default(self, obj: Object) -> None:
        defaults.default_endpoints(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return endpoints.validate_endpoints(obj)

    def warnings(self, obj: Object) -> list[str]:
        return ["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]


class EndpointSliceStrategy(Strategy):
    validates_prefix_on_update = True
    generation_fields = ("endpoints", "ports", "addressType")
    empty_is_null = (("endpoints",), ("ports",))

    def default(self, obj: Object) -> None:
        defaults.default_endpoint_slice(obj)

    def prepare_create(self, obj: Object) -> None:
        """Drop the field of discovery.k8s.io/v1beta1, which cannot be set through v1."""
        for endpoint in obj.get("endpoints") or ():
            endpoint.pop("deprecatedTopology", None)

    def prepare_update(self, new: Object, old: Object) -> None:
        self.prepare_create(new)

    def validate(self, obj: Object) -> list[FieldError]:
        return endpoints.validate_endpoint_slice(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return endpoints.validate_endpoint_slice_update(new, old)

    def warnings(self, obj: Object) -> list[str]:
        if obj.get("addressType") == "FQDN":
            return ["spec.addressType: FQDN endpoints are deprecated"]
        return []


class IngressStrategy(StatusSubresourceStrategy):
    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"loadBalancer": {}}

    def validate(self, obj: Object) -> list[FieldError]:
        return ingress.validate_ingress(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return ingress.validate_ingress_update(new, old)

    def warnings(self, obj: Object) -> list[str]:
        if "kubernetes.io/ingress.class" in (obj["metadata"].get("annotations") or {}):
            return [
                "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
            ]
        return []


class IngressClassStrategy(Strategy):
    def default(self, obj: Object) -> None:
        defaults.default_ingress_class(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return ingress.validate_ingress_class(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return ingress.validate_ingress_class_update(new, old)


class NetworkPolicyStrategy(Strategy):
    def default(self, obj: Object) -> None:
        defaults.default_network_policy(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return ingress.validate_network_policy(obj)
