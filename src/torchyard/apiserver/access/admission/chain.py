"""The built-in rules in kube-apiserver's order."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random, SystemRandom

from torchyard.apiserver.access.admission import limits, namespaces, pods, roles, service_account, storage
from torchyard.apiserver.access.admission.attributes import Attributes
from torchyard.apiserver.access.admission.quota import Quotas, Used
from torchyard.apiserver.access.rbac import Authorizer

Rule = Callable[[Attributes], None]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class BuiltInAdmission:
    """Call `mutate` before a write is validated, `validate` after, and `charge` last of all, after any webhooks."""

    def __init__(
        self,
        authorizer: Authorizer,
        *,
        random: Random | None = None,
        now: Callable[[], datetime] = _utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        chance = random or SystemRandom()
        self._quotas = Quotas(now, monotonic)
        self._mutating: tuple[Rule, ...] = (
            namespaces.check_namespace,
            limits.set_limits,
            lambda attributes: service_account.give_account(attributes, chance),
            pods.set_priority,
            pods.tolerate_troubles,
            storage.set_storage_class,
            storage.protect_in_use,
            pods.use_runtime_class,
            storage.set_ingress_class,
        )
        self._validating: tuple[Rule, ...] = (
            namespaces.check_namespace,
            limits.check_limits,
            service_account.check_mirror,
            pods.check_priority_class,
            storage.check_resize,
            lambda attributes: roles.check_rights(attributes, authorizer),
        )

    def mutate(self, attributes: Attributes) -> None:
        """Complete the new object, or refuse it."""
        for rule in self._mutating:
            rule(attributes)

    def validate(self, attributes: Attributes) -> None:
        """Refuse the write as it will be stored."""
        for rule in self._validating:
            rule(attributes)

    def charge(self, attributes: Attributes) -> dict[str, Used]:
        """Count the write against the quotas of its namespace; answers what is used of them now, by their names."""
        return self._quotas.charge(attributes)
