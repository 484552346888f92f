"""The behaviour of roles and bindings."""

from __future__ import annotations

from torchyard.api.access import validation
from torchyard.api.behaviour import Behaviour, Object
from torchyard.api.faults import Fault


class RoleBehaviour(Behaviour):
    name_rule = "path-segment"
    create_on_update = True
    generation_fields = None
    empty_is_null = (("rules",),)

    def validate(self, obj: Object) -> list[Fault]:
        return validation.validate_role(obj)


class ClusterRoleBehaviour(RoleBehaviour):
    def validate(self, obj: Object) -> list[Fault]:
        return validation.validate_cluster_role(obj)


class RoleBindingBehaviour(Behaviour):
    name_rule = "path-segment"
    create_on_update = True
    generation_fields = None
    _namespaced = True

    def default(self, obj: Object) -> None:
        validation.default_binding(obj)

    def validate(self, obj: Object) -> list[Fault]:
        return validation.validate_binding(obj, namespaced=self._namespaced)

    def validate_update(self, new: Object, old: Object) -> list[Fault]:
        return validation.validate_binding_update(new, old, namespaced=self._namespaced)


class ClusterRoleBindingBehaviour(RoleBindingBehaviour):
    _namespaced = False
