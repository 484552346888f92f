"""ResourceQuota: a namespace cannot use more than its quotas allow.

Usage is computed from the stored objects, not from the quota's status, so it is correct from the start and needs no
controller. A write that was admitted but is not stored yet is reserved and counted too; otherwise concurrent writes
could exceed a quota. The new usage is returned so that the server can write it into the quota's status at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchyard.api import quantity
from torchyard.api.errors import qualified_resource
from torchyard.api.objects import Object
from torchyard.api.pod.totals import Amounts, add
from torchyard.api.quantity import ZERO
from torchyard.api.quota.scopes import counts
from torchyard.api.quota.usage import missing_resources, total_usage, usage_of
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes
from torchyard.apiserver.access.lister import Lister

UsedAmounts = dict[str, str]  # amounts by the resource names in `spec.hard`

# How long an admitted write may take to be stored.
RESERVATION_SECONDS = 10.0
# Resources whose usage can grow with an update.
_UPDATED = ("services", "persistentvolumeclaims")


@dataclass(frozen=True, slots=True)
class _Reservation:
    """A new object that was admitted and may not be stored yet."""

    obj: Object
    expires_at: float


class QuotaAccountant:
    """Checks new objects against the quotas of their namespace."""

    def __init__(self, now: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._now = now
        self._monotonic = monotonic
        self._reservations: dict[tuple[str, str, str, str], _Reservation] = {}
        self._stored: dict[tuple[str, str, str], _StoredUsage] = {}  # by group, resource and namespace

    def charge(self, attributes: AdmissionAttributes) -> dict[str, UsedAmounts]:
        """Reject a write that exceeds a quota; returns the new usage of each quota it is charged to, by name."""
        if not attributes.namespace or attributes.subresource or not _counts(attributes):
            return {}
        all_quotas = attributes.lister.list("", "resourcequotas", attributes.namespace)
        quotas = sorted((quota for quota in all_quotas if _concerns(quota, attributes)), key=_name)
        if not quotas:
            return {}
        now = self._now()
        group, resource = attributes.group, attributes.resource
        cost = usage_of(group, resource, attributes.new, now)
        if attributes.old is not None:
            before = usage_of(group, resource, attributes.old, now)
            cost = {name: amount - before.get(name, ZERO) for name, amount in cost.items()}
        cost = {name: amount for name, amount in cost.items() if amount.nano > 0}
        charged = {_name(quota): self._charge(attributes, quota, cost, now) for quota in quotas}
        if attributes.operation == "CREATE" and not attributes.dry_run:
            key = (group, resource, attributes.namespace, attributes.new["metadata"].get("name", ""))
            self._reservations[key] = _Reservation(attributes.new, self._monotonic() + RESERVATION_SECONDS)
        return {name: used for name, used in charged.items() if used}

    def _charge(self, attributes: AdmissionAttributes, quota: Object, cost: Amounts, now: datetime) -> UsedAmounts:
        name, spec = quota["metadata"]["name"], quota.get("spec") or {}
        hard = {key: quantity.parse(text) for key, text in (spec.get("hard") or {}).items()}
        if attributes.resource == "pods" and not attributes.group:
            missing = missing_resources(attributes.new["spec"], set(hard))
            if missing:
                raise attributes.forbidden_error(f"failed quota: {name}: must specify {missing}")
        cost = {key: amount for key, amount in cost.items() if key in hard}
        if not cost:
            return {}
        used = self._used(attributes.lister, quota, attributes.group, attributes.resource, now=now)
        exceeded = sorted(key for key in cost if used.get(key, ZERO) + cost[key] > hard[key])
        if exceeded:
            requested, taken, limited = (
                ",".join(f"{key}={amounts.get(key, ZERO)}" for key in exceeded) for amounts in (cost, used, hard)
            )
            raise attributes.forbidden_error(
                f"exceeded quota: {name}, requested: {requested}, used: {taken}, limited: {limited}"
            )
        return {key: str(used.get(key, ZERO) + amount) for key, amount in cost.items()}

    def _used(self, lister: Lister, quota: Object, group: str, resource: str, *, now: datetime) -> Amounts:
        """The usage of a quota by one resource's objects, both stored and reserved."""
        namespace, spec = quota["metadata"]["namespace"], quota.get("spec") or {}
        reserved = self._pending(lister, group, resource, namespace)
        if spec.get("scopes") or spec.get("scopeSelector"):
            stored = lister.list(group, resource, namespace)
            return total_usage(spec, group, resource, (*stored, *reserved), now=now)
        usage = self._stored.setdefault((group, resource, namespace), _StoredUsage(group, resource, namespace))
        total = dict(usage.update(lister, now))
        add(total, total_usage(spec, group, resource, reserved, now=now))
        return total

    def _pending(self, lister: Lister, group: str, resource: str, namespace: str) -> Iterable[Object]:
        """Objects that were admitted and are not stored yet."""
        now = self._monotonic()
        for key in list(self._reservations):
            reservation = self._reservations[key]
            if now > reservation.expires_at or lister.get(*key) is not None:
                del self._reservations[key]
            elif key[:3] == (group, resource, namespace):
                yield reservation.obj


class _StoredUsage:
    """The usage of all objects of one resource in a namespace. Only those that have changed are decoded again."""

    def __init__(self, group: str, resource: str, namespace: str) -> None:
        self._where = group, resource, namespace
        self._revisions: dict[str, int] = {}
        self._usages: dict[str, Amounts] = {}
        self._ending: set[str] = set()  # pods in deletion, whose usage ends with their grace period
        self._total: Amounts = {}

    def update(self, lister: Lister, now: datetime) -> Amounts:
        """The present total."""
        group, resource, _ = self._where
        revisions = dict(lister.revisions(*self._where))
        changed = {name for name, _ in revisions.items() - self._revisions.items()} | (self._ending & revisions.keys())
        for name in (self._revisions.keys() - revisions.keys()) | changed:
            self._subtract(self._usages.pop(name, {}))
            self._ending.discard(name)
        for name in changed:
            obj = lister.get(*self._where, name)
            if obj is None:
                continue
            usage = self._usages[name] = usage_of(group, resource, obj, now)
            add(self._total, usage)
            if obj["metadata"].get("deletionTimestamp"):
                self._ending.add(name)
        self._revisions = revisions
        return self._total

    def _subtract(self, usage: Amounts) -> None:
        for name, amount in usage.items():
            remaining = self._total.pop(name) - amount
            if remaining.nano:
                self._total[name] = remaining


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _counts(attributes: AdmissionAttributes) -> bool:
    if attributes.operation == "UPDATE":
        return not attributes.group and attributes.resource in _UPDATED
    return attributes.operation == "CREATE"


def _concerns(quota: Object, attributes: AdmissionAttributes) -> bool:
    """Whether the quota limits anything this object uses and its scopes select the object."""
    spec: dict[str, Any] = quota.get("spec") or {}
    hard = spec.get("hard") or {}
    if attributes.group or attributes.resource not in ("pods", "services", "persistentvolumeclaims"):
        names = {attributes.resource, f"count/{qualified_resource(attributes.resource, attributes.group)}"}
        if not names & hard.keys():
            return False
    return counts(spec, attributes.resource, attributes.new)
