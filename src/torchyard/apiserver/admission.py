"""Admission as the verbs see it: the built-in rules, then webhooks, then quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.apiserver.access.admission.attributes import Attributes, Operation
from torchyard.apiserver.access.admission.chain import BuiltInAdmission
from torchyard.apiserver.access.lookup import Remembering
from torchyard.apiserver.api import Api, Basis
from torchyard.apiserver.call import Call
from torchyard.apiserver.store.events import Event
from torchyard.apiserver.verbs.update import change

if TYPE_CHECKING:
    from torchyard.apiserver.outside import Outside


CONFIGURATIONS = (
    "/mutatingwebhookconfigurations.admissionregistration.k8s.io/",
    "/validatingwebhookconfigurations.admissionregistration.k8s.io/",
    "/validatingadmissionpolicybindings.admissionregistration.k8s.io/",
)
# What the built-in rules for new pods look at.
POD_RULES = (
    ("", "namespaces"),
    ("", "serviceaccounts"),
    ("", "limitranges"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("node.k8s.io", "runtimeclasses"),
)


class Admission:
    def __init__(self, built_in: BuiltInAdmission) -> None:
        self._built_in = built_in
        self._lookup: Remembering | None = None
        self._outside: Outside | None = None

    async def close(self) -> None:
        if self._outside is not None:
            await self._outside.close()

    async def mutate(self, api: Api, call: Call, operation: Operation, new: Object | None, old: Object | None) -> bool:
        """Complete `new` in place, or refuse it; answers whether a webhook changed it."""
        self._built_in.mutate(self._attributes(api, call, operation, new, old))
        outside = self._outside_of(api)
        return outside is not None and await outside.mutate(call, operation, new, old)

    async def validate(
        self, api: Api, call: Call, operation: Operation, new: Object | None, old: Object | None
    ) -> None:
        """Refuse what is not allowed; the last word before a write."""
        attributes = self._attributes(api, call, operation, new, old)
        self._built_in.validate(attributes)
        outside = self._outside_of(api)
        if outside is not None:
            await outside.validate(call, operation, new, old)
        for quota, used in self._built_in.charge(attributes).items():
            if not call.dry_run:
                await _note_use(api, call, quota, used)

    def basis(self, api: Api) -> Basis | None:
        """None where webhooks or policies are asked, or quotas charged: for each pod anew."""
        lookup = self._lookup or self._begin(api)
        if self._outside is not None or lookup.list("", "resourcequotas"):
            return None
        return tuple([lookup.revision(group, resource) for group, resource in POD_RULES])

    def _outside_of(self, api: Api) -> Outside | None:
        """Webhooks and policies, where somebody has configured any: most planes never need them."""
        if self._lookup is None:
            self._begin(api)
        return self._outside

    def _begin(self, api: Api) -> Remembering:
        def configured(_: Event) -> None:
            if self._outside is None:
                from torchyard.apiserver.outside import Outside

                self._outside = Outside(api)

        for collection in CONFIGURATIONS:
            api.store.listen(collection, configured)
        self._lookup = Remembering(api.lookup)
        return self._lookup

    def _attributes(
        self, api: Api, call: Call, operation: Operation, new: Object | None, old: Object | None
    ) -> Attributes:
        return Attributes(
            operation,
            call.resource.group,
            call.resource.plural,
            call.namespace,
            call.name,
            call.user,
            self._lookup or self._begin(api),
            new,
            old,
            call.subresource,
            call.dry_run,
        )


async def _note_use(api: Api, call: Call, quota: str, used: dict[str, str]) -> None:
    """Write into a quota's status what it will be charged, before the write that charges it."""
    resource = api.catalog.find("", "v1", "resourcequotas")
    assert resource is not None
    noting = Call(resource, "update", call.namespace, quota, call.user, call.now, subresource="status")
    noting.manager = "kube-apiserver"

    def charged(now: Object) -> Object:
        status = now.get("status") or {}
        hard = (now.get("spec") or {}).get("hard") or {}
        known = {**dict.fromkeys(hard, "0"), **(status.get("used") or {}), **used}
        return {**now, "status": {"hard": hard, "used": {name: known[name] for name in known if name in hard}}}

    try:
        await change(api, noting, charged)
    except StatusError as error:
        if error.status not in (404, 409):  # the quota is gone, or others note what they use all the time
            raise
