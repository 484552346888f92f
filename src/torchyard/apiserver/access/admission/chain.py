"""The built-in admission plugins in kube-apiserver's order."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

from torchyard.apiserver.access import rbac
from torchyard.apiserver.access.admission import (
    certificate_requests,
    kueue,
    limit_ranger,
    namespace_lifecycle,
    node_taints,
    pod_fields,
    pods,
    policy_parameters,
    role_escalation,
    service_account,
    storage,
    trainjob,
)
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes
from torchyard.apiserver.access.admission.policy_parameters import PluralGetter
from torchyard.apiserver.access.admission.resource_quota import QuotaAccountant, UsedAmounts
from torchyard.apiserver.access.rbac import Authorizer

Plugin = Callable[[AdmissionAttributes], None]
# A plugin and the resources it applies to; None means all.
ChainEntry = tuple[Plugin, tuple[str, ...] | None]

PODS = ("pods",)
CLAIMS = ("persistentvolumeclaims",)
SIGNING_REQUESTS = (certificate_requests.RESOURCE,)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class _PluginChain:
    """Plugins in order, indexed by resource, so that a write runs only those that apply to it."""

    def __init__(self, *entries: ChainEntry) -> None:
        resources_named = {resource for _, resources in entries for resource in resources or ()}
        self._by_resource = {
            resource: tuple(rule for rule, resources in entries if resources is None or resource in resources)
            for resource in resources_named
        }
        self._others = tuple(rule for rule, resources in entries if resources is None)

    def apply(self, attributes: AdmissionAttributes) -> None:
        for rule in self._by_resource.get(attributes.resource, self._others):
            rule(attributes)


class BuiltInAdmission:
    """Call `mutate` before any webhooks, `authorize` after those that mutate, `validate` once the object is known to be
    valid, and `charge` last of all.
    """

    def __init__(
        self,
        authorizer: Authorizer,
        *,
        random: Random | None = None,
        now: Callable[[], datetime] = _utc_now,
        monotonic: Callable[[], float] = time.monotonic,
        with_queues: bool = False,
        plural_of: PluralGetter = lambda _api_version, _kind: None,
    ) -> None:
        rng = random or Random()
        self._with_queues = with_queues
        self._quotas = QuotaAccountant(now, monotonic)
        self._mutating = _PluginChain(
            (namespace_lifecycle.check_namespace, None),
            (node_taints.taint_new_node, ("nodes",)),
            (limit_ranger.set_limits, PODS),
            (lambda attributes: service_account.set_service_account(attributes, rng), PODS),
            (pods.set_priority, PODS),
            (pods.add_tolerations, PODS),
            (storage.set_storage_class, CLAIMS),
            (storage.protect_in_use, tuple(resource for _, resource in storage.PROTECTED)),
            (pods.set_runtime_class, PODS),
            (storage.set_ingress_class, ("ingresses",)),
            *([(kueue.suspend_queued_job, kueue.RESOURCES)] if with_queues else []),
            (lambda attributes: trainjob.stamp_patches(attributes, now()), trainjob.RESOURCES),
        )
        self._authorizing = _PluginChain(
            (certificate_requests.set_requester, SIGNING_REQUESTS),
            (lambda attributes: role_escalation.check_escalation(attributes, authorizer), rbac.RESOURCES),
        )
        self._validating = _PluginChain(
            (namespace_lifecycle.protect_system_namespaces, ("namespaces",)),
            (limit_ranger.check_limits, (*PODS, *CLAIMS)),
            (service_account.check_mirror_pod, PODS),
            (pods.check_priority_class, ("priorityclasses",)),
            (storage.check_resize, CLAIMS),
            (lambda attributes: certificate_requests.check_approval(attributes, authorizer), SIGNING_REQUESTS),
            (certificate_requests.check_subject, SIGNING_REQUESTS),
            (
                lambda attributes: policy_parameters.check_parameters(attributes, authorizer, plural_of),
                (policy_parameters.POLICIES, policy_parameters.BINDINGS),
            ),
            (trainjob.check_train_job, trainjob.RESOURCES),
            *([(kueue.check_queue, kueue.RESOURCES)] if with_queues else []),
        )

    def warnings(self, attributes: AdmissionAttributes) -> list[str]:
        """Texts of the Warning header about a write that is accepted. Call it before `mutate`."""
        if attributes.resource in trainjob.RESOURCES:
            return trainjob.warnings(attributes)
        queues = kueue.warnings(attributes) if self._with_queues else []
        return queues + (
            pod_fields.unsupported_fields(attributes) if attributes.resource in pod_fields.RESOURCES else []
        )

    def mutate(self, attributes: AdmissionAttributes) -> None:
        """Complete the new object, or reject it."""
        self._mutating.apply(attributes)

    def authorize(self, attributes: AdmissionAttributes) -> None:
        """Reject what the user may not write, as upstream's registries do: before validation, after mutation."""
        self._authorizing.apply(attributes)

    def validate(self, attributes: AdmissionAttributes) -> None:
        """Reject the write as it will be stored."""
        self._validating.apply(attributes)

    def charge(self, attributes: AdmissionAttributes) -> dict[str, UsedAmounts]:
        """Charge the write to the quotas of its namespace; returns the new usage of each quota by its name."""
        return self._quotas.charge(attributes)
