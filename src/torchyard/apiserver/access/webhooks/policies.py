"""ValidatingAdmissionPolicy: CEL validations that bindings put into effect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.selectors import from_object
from torchyard.apiserver.access.webhooks.matching import EquivalentsGetter, Matcher, NamespaceGetter
from torchyard.apiserver.access.webhooks.policy_decision import PolicyDecision
from torchyard.apiserver.access.webhooks.versioned_attributes import VersionedAttributes

# Returns the parameter objects of an apiVersion, kind and namespace.
ParametersGetter = Callable[[str, str, str], Iterable[Object]]
_STATUS = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}
_NO_PARAMS = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"


class PolicyValidator:
    """Validates writes against the stored policies and bindings."""

    def __init__(
        self,
        policies: Callable[[], Iterable[Object]],
        bindings: Callable[[], Iterable[Object]],
        namespace: NamespaceGetter,
        *,
        parameters: ParametersGetter = lambda api_version, kind, namespace: (),
        equivalents: EquivalentsGetter = lambda resource: (),
    ) -> None:
        self._policies = policies
        self._bindings = bindings
        self._namespace = namespace
        self._parameters = parameters
        self._matcher = Matcher(namespace, equivalents)

    def validate(self, attributes: VersionedAttributes) -> list[str]:
        """Validate a write and return the warnings. Raises the first denial."""
        bindings = list(self._bindings())
        if not bindings or attributes.is_exempt:
            return []
        policies = {obj["metadata"]["name"]: obj for obj in self._policies()}
        warnings: list[str] = []
        for binding in sorted(bindings, key=lambda obj: str(obj["metadata"]["name"])):
            policy = policies.get(binding["spec"].get("policyName"))
            if policy is not None:
                self._enforce(policy, binding, attributes, warnings)
        return warnings

    def _enforce(self, policy: Object, binding: Object, attributes: VersionedAttributes, warnings: list[str]) -> None:
        versioned = self._match_policy(policy, binding, attributes)
        if versioned is None:
            return
        actions = binding["spec"].get("validationActions") or ()
        policy_name, binding_name = policy["metadata"]["name"], binding["metadata"]["name"]
        subject = f"ValidatingAdmissionPolicy '{policy_name}' with binding '{binding_name}'"
        for decision in self._decisions(policy, binding, versioned, attributes):
            if "Warn" in actions:
                warnings.append(f"Validation failed for {subject}: {decision.message}")
            if "Deny" in actions:
                raise _denied(attributes, f"{subject} denied request: {decision.message}", decision.reason)

    def _match_policy(
        self, policy: Object, binding: Object, attributes: VersionedAttributes
    ) -> VersionedAttributes | None:
        """The write in the version the policy asks for; None unless both the policy and its binding match."""
        constraints = policy["spec"].get("matchConstraints") or {}
        versioned = self._match_constraints(constraints, attributes)
        narrower = binding["spec"].get("matchResources")
        if versioned is None or not narrower:
            return versioned
        if not narrower.get("resourceRules"):
            narrower = {**narrower, "resourceRules": constraints.get("resourceRules")}
        return versioned if self._match_constraints(narrower, attributes) is not None else None

    def _match_constraints(
        self, constraints: Mapping[str, Any], attributes: VersionedAttributes
    ) -> VersionedAttributes | None:
        excluded = constraints.get("excludeResourceRules") or ()
        policy = constraints.get("matchPolicy") or "Equivalent"
        if excluded and self._matcher.match_version(attributes, excluded, policy) is not None:
            return None
        return self._matcher.match(attributes, constraints, "resourceRules")

    def _decisions(
        self, policy: Object, binding: Object, versioned: VersionedAttributes, attributes: VersionedAttributes
    ) -> list[PolicyDecision]:
        from torchyard.apiserver.access.webhooks.policy_evaluation import evaluate_policy

        spec = policy["spec"]
        ignores = spec.get("failurePolicy") == "Ignore"
        namespace = self._namespace(attributes.namespace) if attributes.namespace else None
        decisions: list[PolicyDecision] = []
        try:
            for params in self._params(spec, binding["spec"], attributes):
                evaluated = evaluate_policy(spec, versioned, attributes, params=params, namespace=namespace)
                decisions += [decision for decision in evaluated if not (decision.failed and ignores)]
        except LookupError as error:
            if not ignores:
                decisions.append(PolicyDecision(str(error.args[0]), "Invalid"))
        return decisions

    def _params(self, policy: Object, binding: Object, attributes: VersionedAttributes) -> list[Object | None]:
        """The parameter objects to evaluate with; a single None for a policy without parameters."""
        kind, param_ref = policy.get("paramKind"), binding.get("paramRef")
        if not kind or not param_ref:
            return [None]
        namespace = param_ref.get("namespace") or attributes.namespace
        candidates = self._parameters(kind.get("apiVersion") or "", kind.get("kind") or "", namespace)
        if param_ref.get("name"):
            params = [obj for obj in candidates if obj["metadata"]["name"] == param_ref["name"]]
        else:
            selector = from_object(param_ref.get("selector") or {})
            params = [obj for obj in candidates if selector.matches(obj["metadata"].get("labels") or {})]
        if not params and param_ref.get("parameterNotFoundAction") == "Deny":
            raise LookupError(_NO_PARAMS)
        return list(params)


def _denied(attributes: VersionedAttributes, message: str, reason: str) -> StatusError:
    details: Object = {"name": attributes.name, "kind": attributes.resource.plural, "causes": [{"message": message}]}
    if attributes.resource.group:
        details = {"name": attributes.name, "group": attributes.resource.group, **details}
    forbidden = attributes.forbidden(message)
    return StatusError(_STATUS.get(reason, 422), reason, forbidden.message, details=details)
