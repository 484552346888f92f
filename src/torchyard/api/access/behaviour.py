"""The behaviour of the RBAC kinds: their names may hold what a URL path may."""

from __future__ import annotations

from typing import ClassVar

from torchyard.api.behaviour import Behaviour, NameRule


class RbacBehaviour(Behaviour):
    name_rule: ClassVar[NameRule] = "path-segment"
    generation_fields: ClassVar[tuple[str, ...] | None] = None
    create_on_update: ClassVar[bool] = True
