"""ValidatingAdmissionPolicy: rules in CEL that bindings put in force."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.selectors import from_object
from torchyard.apiserver.access.webhooks.matching import GetEquivalents, GetNamespace, Matcher
from torchyard.apiserver.access.webhooks.versioned_attributes import VersionedAttributes

# Objects by (apiVersion, kind, namespace): what policies take parameters from.
GetParameters = Callable[[str, str, str], Iterable[Object]]
_STATUS = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}
_NO_PARAMS = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"


@dataclass(frozen=True, slots=True)
class _Finding:
    message: str
    reason: str


class PolicyValidator:
    """Policies and their bindings, looked up for every write."""

    def __init__(
        self,
        policies: Callable[[], Iterable[Object]],
        bindings: Callable[[], Iterable[Object]],
        namespace: GetNamespace,
        *,
        parameters: GetParameters = lambda api_version, kind, namespace: (),
        equivalents: GetEquivalents = lambda resource: (),
    ) -> None:
        self._policies = policies
        self._bindings = bindings
        self._namespace = namespace
        self._parameters = parameters
        self._matcher = Matcher(namespace, equivalents)

    def validate(self, asked: VersionedAttributes) -> list[str]:
        """The warnings. Raises the first refusal."""
        bindings = list(self._bindings())
        if not bindings or asked.is_exempt:
            return []
        policies = {one["metadata"]["name"]: one for one in self._policies()}
        warnings: list[str] = []
        for binding in sorted(bindings, key=lambda one: str(one["metadata"]["name"])):
            policy = policies.get(binding["spec"].get("policyName"))
            if policy is not None:
                self._enforce(policy, binding, asked, warnings)
        return warnings

    def _enforce(self, policy: Object, binding: Object, asked: VersionedAttributes, warnings: list[str]) -> None:
        meant = self._meant(policy, binding, asked)
        if meant is None:
            return
        actions = binding["spec"].get("validationActions") or ()
        policy_name, binding_name = policy["metadata"]["name"], binding["metadata"]["name"]
        which = f"ValidatingAdmissionPolicy '{policy_name}' with binding '{binding_name}'"
        for finding in self._findings(policy, binding, meant, asked):
            if "Warn" in actions:
                warnings.append(f"Validation failed for {which}: {finding.message}")
            if "Deny" in actions:
                raise _denied(asked, f"{which} denied request: {finding.message}", finding.reason)

    def _meant(self, policy: Object, binding: Object, asked: VersionedAttributes) -> VersionedAttributes | None:
        """What the policy is asked about; both it and the binding have a say."""
        constraints = policy["spec"].get("matchConstraints") or {}
        meant = self._constrained(constraints, asked)
        narrower = binding["spec"].get("matchResources")
        if meant is None or not narrower:
            return meant
        if not narrower.get("resourceRules"):
            narrower = {**narrower, "resourceRules": constraints.get("resourceRules")}
        return meant if self._constrained(narrower, asked) is not None else None

    def _constrained(self, constraints: Mapping[str, Any], asked: VersionedAttributes) -> VersionedAttributes | None:
        excluded = constraints.get("excludeResourceRules") or ()
        policy = constraints.get("matchPolicy") or "Equivalent"
        if excluded and self._matcher.version(asked, excluded, policy) is not None:
            return None
        return self._matcher.match(asked, constraints, "resourceRules")

    def _findings(
        self, policy: Object, binding: Object, meant: VersionedAttributes, asked: VersionedAttributes
    ) -> list[_Finding]:
        from torchyard.apiserver.access.webhooks.policy_evaluation import evaluate_policy

        spec = policy["spec"]
        ignores = spec.get("failurePolicy") == "Ignore"
        namespace = self._namespace(asked.namespace) if asked.namespace else None
        found: list[_Finding] = []
        try:
            for params in self._params(spec, binding["spec"], asked):
                said = evaluate_policy(spec, meant, asked, params=params, namespace=namespace)
                found += [_Finding(message, reason) for message, reason, failed in said if not (failed and ignores)]
        except LookupError as error:
            if not ignores:
                found.append(_Finding(str(error.args[0]), "Invalid"))
        return found

    def _params(self, policy: Object, binding: Object, asked: VersionedAttributes) -> list[Object | None]:
        """The parameters to evaluate with, each in turn; one None for a policy without."""
        kind, wanted = policy.get("paramKind"), binding.get("paramRef")
        if not kind or not wanted:
            return [None]
        namespace = wanted.get("namespace") or asked.namespace
        known = self._parameters(kind.get("apiVersion") or "", kind.get("kind") or "", namespace)
        if wanted.get("name"):
            found = [one for one in known if one["metadata"]["name"] == wanted["name"]]
        else:
            selector = from_object(wanted.get("selector") or {})
            found = [one for one in known if selector.matches(one["metadata"].get("labels") or {})]
        if not found and wanted.get("parameterNotFoundAction") == "Deny":
            raise LookupError(_NO_PARAMS)
        return list(found)


def _denied(asked: VersionedAttributes, message: str, reason: str) -> StatusError:
    details: Object = {"name": asked.name, "kind": asked.resource.plural, "causes": [{"message": message}]}
    if asked.resource.group:
        details = {"name": asked.name, "group": asked.resource.group, **details}
    forbidden = asked.forbidden(message)
    return StatusError(_STATUS.get(reason, 422), reason, forbidden.message, details=details)
