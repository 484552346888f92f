"""Webhook configurations and admission policies as kinds: their expressions must compile.

Whether an expression compiles can only be told with the language at hand, which the ground does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torchyard.api.access.policies import AdmissionPolicyBehaviour
from torchyard.api.access.webhooks import MutatingWebhookBehaviour, ValidatingWebhookBehaviour
from torchyard.api.behaviour import Behaviour, Object
from torchyard.api.faults import Fault
from torchyard.api.resources import Resource

GROUP = "admissionregistration.k8s.io"


def with_expressions(resources: Iterable[Resource]) -> Iterable[Resource]:
    """The resources, with those that hold expressions having them checked."""
    for one in resources:
        behaviour = _BEHAVIOURS.get(one.plural) if one.group == GROUP else None
        yield replace(one, behaviour=behaviour) if behaviour else one


class _ValidatingWebhooks(ValidatingWebhookBehaviour):
    def validate(self, obj: Object) -> list[Fault]:
        return super().validate(obj) + _webhook_faults(obj)


class _MutatingWebhooks(MutatingWebhookBehaviour):
    def validate(self, obj: Object) -> list[Fault]:
        return super().validate(obj) + _webhook_faults(obj)


class _Policies(AdmissionPolicyBehaviour):
    def validate(self, obj: Object) -> list[Fault]:
        from torchyard.apiserver.access.webhooks.evaluation import policy_faults

        return super().validate(obj) + policy_faults(obj)


_BEHAVIOURS: dict[str, Behaviour] = {
    "validatingwebhookconfigurations": _ValidatingWebhooks(),
    "mutatingwebhookconfigurations": _MutatingWebhooks(),
    "validatingadmissionpolicies": _Policies(),
}


def _webhook_faults(configuration: Object) -> list[Fault]:
    conditions = [
        (condition, f"webhooks[{index}].matchConditions[{place}].expression")
        for index, webhook in enumerate(configuration.get("webhooks") or ())
        for place, condition in enumerate(webhook.get("matchConditions") or ())
    ]
    if not conditions:
        return []
    from torchyard.apiserver.access.webhooks.evaluation import condition_faults

    return [
        fault for condition, field in conditions for fault in condition_faults(condition.get("expression") or "", field)
    ]
