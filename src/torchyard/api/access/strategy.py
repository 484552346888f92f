"""Strategies of roles and role bindings."""

from __future__ import annotations

from torchyard.api.access import validation
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.strategy import Strategy


class RoleStrategy(Strategy):
    name_rule = "path-segment"
    create_on_update = True
    generation_fields = None
    empty_is_null = (("rules",),)

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_role(obj)


class ClusterRoleStrategy(RoleStrategy):
    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_cluster_role(obj)


class RoleBindingStrategy(Strategy):
    name_rule = "path-segment"
    create_on_update = True
    generation_fields = None
    _namespaced = True

    def default(self, obj: Object) -> None:
        validation.default_binding(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_binding(obj, namespaced=self._namespaced)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_binding_update(new, old, namespaced=self._namespaced)


class ClusterRoleBindingStrategy(RoleBindingStrategy):
    _namespaced = False
