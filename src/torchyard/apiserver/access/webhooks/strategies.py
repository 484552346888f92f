"""Webhook configurations and admission policies as kinds: their expressions must compile.

Whether an expression compiles can only be told with the language at hand, which the ground does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torchyard.api.access.policies import ValidatingAdmissionPolicyStrategy
from torchyard.api.access.webhooks import MutatingWebhookStrategy, ValidatingWebhookStrategy
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.api.strategy import Strategy

GROUP = "admissionregistration.k8s.io"


def with_expression_checks(resources: Iterable[Resource]) -> Iterable[Resource]:
    """The resources, with those that hold expressions having them checked."""
    for one in resources:
        strategy = _STRATEGIES.get(one.plural) if one.group == GROUP else None
        yield replace(one, strategy=strategy) if strategy else one


class _ValidatingWebhooks(ValidatingWebhookStrategy):
    def validate(self, obj: Object) -> list[FieldError]:
        return super().validate(obj) + _webhook_errors(obj)


class _MutatingWebhooks(MutatingWebhookStrategy):
    def validate(self, obj: Object) -> list[FieldError]:
        return super().validate(obj) + _webhook_errors(obj)


class _Policies(ValidatingAdmissionPolicyStrategy):
    def validate(self, obj: Object) -> list[FieldError]:
        from torchyard.apiserver.access.webhooks.policy_evaluation import policy_errors

        return super().validate(obj) + policy_errors(obj)


_STRATEGIES: dict[str, Strategy] = {
    "validatingwebhookconfigurations": _ValidatingWebhooks(),
    "mutatingwebhookconfigurations": _MutatingWebhooks(),
    "validatingadmissionpolicies": _Policies(),
}


def _webhook_errors(configuration: Object) -> list[FieldError]:
    conditions = [
        (condition, f"webhooks[{index}].matchConditions[{place}].expression")
        for index, webhook in enumerate(configuration.get("webhooks") or ())
        for place, condition in enumerate(webhook.get("matchConditions") or ())
    ]
    if not conditions:
        return []
    from torchyard.apiserver.access.webhooks.policy_evaluation import condition_errors

    return [
        error for condition, field in conditions for error in condition_errors(condition.get("expression") or "", field)
    ]
