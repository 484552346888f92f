"""Admission as the verbs see it: the built-in rules, then webhooks, then quotas."""

from __future__ import annotations

from typing import Any

from torchyard.apiserver.access.admission.attributes import Attributes
from torchyard.apiserver.access.admission.chain import BuiltInAdmission
from torchyard.apiserver.access.lookup import Remembering
from torchyard.apiserver.api import Api, Operation
from torchyard.apiserver.call import Call

Object = dict[str, Any]


class Admission:
    def __init__(self, built_in: BuiltInAdmission) -> None:
        self._built_in = built_in
        self._lookup: Remembering | None = None

    async def mutate(self, api: Api, call: Call, operation: Operation, new: Object | None, old: Object | None) -> bool:
        """Complete `new` in place, or refuse it; answers whether a webhook changed it."""
        self._built_in.mutate(self._attributes(api, call, operation, new, old))
        return False

    async def validate(
        self, api: Api, call: Call, operation: Operation, new: Object | None, old: Object | None
    ) -> None:
        """Refuse what is not allowed; the last word before a write."""
        attributes = self._attributes(api, call, operation, new, old)
        self._built_in.validate(attributes)
        self._built_in.charge(attributes)

    def _attributes(
        self, api: Api, call: Call, operation: Operation, new: Object | None, old: Object | None
    ) -> Attributes:
        if self._lookup is None:
            self._lookup = Remembering(api.lookup)
        return Attributes(
            operation,
            call.resource.group,
            call.resource.plural,
            call.namespace,
            call.name,
            call.user,
            self._lookup,
            new,
            old,
            call.subresource,
            call.dry_run,
        )
