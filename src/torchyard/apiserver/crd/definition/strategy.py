"""The strategy of CustomResourceDefinitions."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.strategy import Strategy
from torchyard.apiserver.crd.definition.spec import default_definition, definition_errors, definition_update_errors
from torchyard.apiserver.crd.definition.status import carry_over_status, initial_status, mark_terminating


class DefinitionStrategy(Strategy):
    """Accepting the names (`status.accept_names`) needs the other CRDs; the `CrdController` calls it."""

    qualified_finalizers = False
    unconditional_update: ClassVar[bool] = False

    def default(self, obj: Object) -> None:
        default_definition(obj)

    def prepare_create(self, obj: Object) -> None:
        initial_status(obj)

    def prepare_update(self, new: Object, old: Object) -> None:
        carry_over_status(new, old)

    def prepare_status(self, new: Object, old: Object) -> None:
        new["spec"] = old["spec"]

    def on_delete(self, obj: Object, now: datetime) -> None:
        mark_terminating(obj, now)

    def validate(self, obj: Object) -> list[FieldError]:
        return definition_errors(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return definition_update_errors(new, old)
