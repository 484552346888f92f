"""Strategies of webhook configurations and admission policies that also compile their expressions.

The strategies in `api` cannot do this, because `api` does not know CEL.
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
    """The resources, with strategies that compile the expressions of those that have any."""
    for resource in resources:
        strategy = _STRATEGIES.get(resource.plural) if resource.group == GROUP else None
        yield replace(resource, strategy=strategy) if strategy else resource


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
        (condition, f"webhooks[{index}].matchConditions[{position}].expression")
        for index, webhook in enumerate(configuration.get("webhooks") or ())
        for position, condition in enumerate(webhook.get("matchConditions") or ())
    ]
    if not conditions:
        return []
    from torchyard.apiserver.access.webhooks.policy_evaluation import condition_errors

    return [
        error for condition, field in conditions for error in condition_errors(condition.get("expression") or "", field)
    ]
