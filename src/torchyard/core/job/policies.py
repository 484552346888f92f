"""podFailurePolicy and successPolicy: the rule that a failed pod or the succeeded indexes match."""

from __future__ import annotations

from typing import NamedTuple

from torchyard.api.job import messages
from torchyard.api.objects import Object
from torchyard.core.job import indexes
from torchyard.core.job.view import JobView

FAIL_JOB, FAIL_INDEX, IGNORE, COUNT = "FailJob", "FailIndex", "Ignore", "Count"


class FailurePolicyMatch(NamedTuple):
    action: str = COUNT
    message: str = ""  # why the job fails, for FailJob

    @property
    def counts(self) -> bool:
        return self.action != IGNORE


def match_failure_policy(view: JobView, pod: Object) -> FailurePolicyMatch:
    """The first rule that a failed pod matches; without one the failure counts."""
    for number, rule in enumerate((view.spec.get("podFailurePolicy") or {}).get("rules") or ()):
        message = _match(rule, pod, number)
        if message:
            return FailurePolicyMatch(rule["action"], message if rule["action"] == FAIL_JOB else "")
    return FailurePolicyMatch()


def _match(rule: Object, pod: Object, number: int) -> str:
    """Why a rule matches, in upstream's words; empty if it does not match."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    name = f"{metadata.get('namespace', '')}/{metadata['name']}"
    if rule.get("onExitCodes") is not None:
        for container in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
            ended = (container.get("state") or {}).get("terminated")
            if ended and _has_exit_code(rule["onExitCodes"], container["name"], int(ended.get("exitCode") or 0)):
                return messages.exit_code_matched(container["name"], name, int(ended["exitCode"]), number)
        return ""
    patterns = {(pattern["type"], pattern.get("status", "True")) for pattern in rule.get("onPodConditions") or ()}
    for condition in status.get("conditions") or ():
        if (condition["type"], condition["status"]) in patterns:
            return messages.condition_matched(name, condition["type"], number)
    return ""


def _has_exit_code(requirement: Object, container: str, code: int) -> bool:
    if code == 0 or requirement.get("containerName") not in (None, container):
        return False
    is_listed = code in requirement["values"]
    return is_listed if requirement["operator"] == "In" else not is_listed


def match_success_policy(view: JobView, succeeded: indexes.IndexSet) -> str:
    """The message of the first success rule that is met; empty if none is."""
    for number, rule in enumerate((view.spec.get("successPolicy") or {}).get("rules") or ()):
        counted, required = len(succeeded), rule.get("succeededCount")
        if rule.get("succeededIndexes") is not None:
            named, counted = indexes.count(rule["succeededIndexes"], view.completions or 0, succeeded)
            required = named if required is None else required
        if required is not None and counted >= required:
            return messages.matched_success_rule(number)
    return ""
