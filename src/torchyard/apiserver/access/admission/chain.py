"""The built-in rules in kube-apiserver's order."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

from torchyard.apiserver.access import rbac
from torchyard.apiserver.access.admission import (
    limits,
    namespaces,
    nodes,
    pods,
    queues,
    roles,
    service_account,
    storage,
)
from torchyard.apiserver.access.admission.attributes import Attributes
from torchyard.apiserver.access.admission.quota import Quotas, Used
from torchyard.apiserver.access.rbac import Authorizer

Rule = Callable[[Attributes], None]
# A rule and the resources it is about; None means all.
Entry = tuple[Rule, tuple[str, ...] | None]

PODS = ("pods",)
CLAIMS = ("persistentvolumeclaims",)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class _Rules:
    """Rules in order, found by resource, so that a write passes only those that could say something."""

    def __init__(self, *entries: Entry) -> None:
        named = {resource for _, resources in entries for resource in resources or ()}
        self._by_resource = {
            one: tuple(rule for rule, resources in entries if resources is None or one in resources) for one in named
        }
        self._others = tuple(rule for rule, resources in entries if resources is None)

    def apply(self, attributes: Attributes) -> None:
        for rule in self._by_resource.get(attributes.resource, self._others):
            rule(attributes)


class BuiltInAdmission:
    """Call `mutate` before a write is validated, `validate` after, and `charge` last of all, after any webhooks."""

    def __init__(
        self,
        authorizer: Authorizer,
        *,
        random: Random | None = None,
        now: Callable[[], datetime] = _utc_now,
        monotonic: Callable[[], float] = time.monotonic,
        with_queues: bool = False,
    ) -> None:
        chance = random or Random()
        self._quotas = Quotas(now, monotonic)
        self._mutating = _Rules(
            (namespaces.check_namespace, None),
            (nodes.keep_pods_away, ("nodes",)),
            (limits.set_limits, PODS),
            (lambda attributes: service_account.give_account(attributes, chance), PODS),
            (pods.set_priority, PODS),
            (pods.tolerate_troubles, PODS),
            (storage.set_storage_class, CLAIMS),
            (storage.protect_in_use, tuple(resource for _, resource in storage.PROTECTED)),
            (pods.use_runtime_class, PODS),
            (storage.set_ingress_class, ("ingresses",)),
            *([(queues.hold_back, queues.RESOURCES)] if with_queues else []),
        )
        self._validating = _Rules(
            (namespaces.keep_immortal, ("namespaces",)),
            (limits.check_limits, (*PODS, *CLAIMS)),
            (service_account.check_mirror, PODS),
            (pods.check_priority_class, ("priorityclasses",)),
            (storage.check_resize, CLAIMS),
            (lambda attributes: roles.check_rights(attributes, authorizer), rbac.RESOURCES),
            *([(queues.check_queue, queues.RESOURCES)] if with_queues else []),
        )

    def mutate(self, attributes: Attributes) -> None:
        """Complete the new object, or refuse it."""
        self._mutating.apply(attributes)

    def validate(self, attributes: Attributes) -> None:
        """Refuse the write as it will be stored."""
        self._validating.apply(attributes)

    def charge(self, attributes: Attributes) -> dict[str, Used]:
        """Count the write against the quotas of its namespace; answers what is used of them now, by their names."""
        return self._quotas.charge(attributes)
