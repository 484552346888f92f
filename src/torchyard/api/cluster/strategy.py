"""Strategies of namespaces, nodes, secrets and the small core kinds."""

from __future__ import annotations

from datetime import datetime

from torchyard.api.cluster import defaults, validation
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.status_subresource import StatusSubresourceStrategy
from torchyard.api.strategy import Strategy


class NamespaceStrategy(StatusSubresourceStrategy):
    name_rule = "label"
    returns_deleted = True
    generation_fields = None

    def default(self, obj: Object) -> None:
        defaults.default_namespace(obj)

    def prepare_create(self, obj: Object) -> None:
        """Add the `kubernetes` finalizer, which keeps the namespace until its content is deleted."""
        defaults.default_namespace(obj)
        obj["status"] = {"phase": "Active"}
        spec = obj.get("spec") or {}
        finalizers = spec.get("finalizers") or []
        if "kubernetes" not in finalizers:
            finalizers = [*finalizers, "kubernetes"]
        obj["spec"] = {**spec, "finalizers": finalizers}

    def prepare_update(self, new: Object, old: Object) -> None:
        # spec.finalizers change only through the finalize subresource
        new["spec"] = old.get("spec") or {}
        super().prepare_update(new, old)

    def on_delete(self, obj: Object, now: datetime) -> None:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_namespace(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return []

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_namespace_status(new, old)

    def selectable(self, obj: Object) -> dict[str, str]:
        name = (obj.get("metadata") or {}).get("name") or ""
        return {"status.phase": (obj.get("status") or {}).get("phase") or "", "name": name}


class NodeStrategy(StatusSubresourceStrategy):
    validates_prefix_on_update = True
    generation_fields = None

    def default(self, obj: Object) -> None:
        defaults.default_node(obj)

    def prepare_create(self, obj: Object) -> None:
        """Keep the status: a node registers itself with one. Drop the configuration that kubelets no longer read."""
        (obj.get("spec") or {}).pop("configSource", None)

    def prepare_update(self, new: Object, old: Object) -> None:
        super().prepare_update(new, old)
        if (old.get("spec") or {}).get("configSource") is None:
            (new.get("spec") or {}).pop("configSource", None)

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_node(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_node_update(new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_node_status(new, old)

    def warnings(self, obj: Object) -> list[str]:
        unused = "this field is deprecated, and is unused by Kubernetes"
        spec = obj.get("spec") or {}
        warnings = ["spec.configSource: the feature is no longer supported"] if spec.get("configSource") else []
        return warnings + ([f"spec.externalID: {unused}"] if spec.get("externalID") else [])

    def selectable(self, obj: Object) -> dict[str, str]:
        return {"spec.unschedulable": "true" if (obj.get("spec") or {}).get("unschedulable") else "false"}


class ServiceAccountStrategy(Strategy):
    validates_prefix_on_update = True
    returns_deleted = True
    generation_fields = None

    def prepare_create(self, obj: Object) -> None:
        """Keep only the names of secrets."""
        if obj.get("secrets"):
            obj["secrets"] = [{"name": secret["name"]} if secret.get("name") else {} for secret in obj["secrets"]]

    def prepare_update(self, new: Object, old: Object) -> None:
        self.prepare_create(new)


class ConfigMapStrategy(Strategy):
    validates_prefix_on_update = True
    generation_fields = None

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_config_map(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_config_map_update(new, old)


class SecretStrategy(Strategy):
    validates_prefix_on_update = True
    generation_fields = None

    def default(self, obj: Object) -> None:
        defaults.default_secret(obj)

    def prepare_update(self, new: Object, old: Object) -> None:
        # a client that predates secret types keeps the current type
        if new.get("type") == "Opaque" and not old.get("type"):
            new["type"] = old.get("type")

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_secret(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_secret_update(new, old)

    def selectable(self, obj: Object) -> dict[str, str]:
        return {"type": obj.get("type") or ""}


class LeaseStrategy(Strategy):
    qualified_finalizers = False
    unconditional_update = False
    create_on_update = True
    generation_fields = None

    def prepare_create(self, obj: Object) -> None:
        # behind a feature gate that Kubernetes 1.34 disables by default
        for name in ("strategy", "preferredHolder"):
            (obj.get("spec") or {}).pop(name, None)

    def prepare_update(self, new: Object, old: Object) -> None:
        self.prepare_create(new)

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_lease(obj)


class PriorityClassStrategy(Strategy):
    generation_fields = ("value", "globalDefault", "description", "preemptionPolicy")

    def default(self, obj: Object) -> None:
        defaults.default_priority_class(obj)

    def is_new_generation(self, new: Object, old: Object) -> bool:
        return False

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_priority_class(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_priority_class_update(new, old)


class RuntimeClassStrategy(Strategy):
    qualified_finalizers = False
    unconditional_update = False
    create_on_update = True
    generation_fields = None

    def default(self, obj: Object) -> None:
        defaults.default_runtime_class(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_runtime_class(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_runtime_class_update(new, old)


class PlainStrategy(Strategy):
    """A kind that is stored as written and has no generation."""

    generation_fields = None
