"""Compares the plane's answers to the requests of `object_cases` with those of Kueue."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.kueue.object_cases import Object, ObjectCase

# Kueue's webhooks decode objects before the schema is checked, and its conversion does so for v1beta1.
_DECODED = re.compile("cannot unmarshal|quantities must match|conversion webhook|parsing time")
_UNCHECKED = "some validation rules were not checked"
_FIELD = re.compile(r"(?:^\[?|, )((?:spec|status|metadata|value|description)[^ ,:]*): ")
# Fields whose name in v1beta1 is another one. Messages of the plane are about the version that it stores.
_RENAMED = {"spec.cohort": "spec.cohortName", "spec.priorityClassName": "spec.priorityClassRef.name"}
_MAX_INT32 = 2**31 - 1


def compare(kueue: Object, plane: Object) -> str:
    """How the answers differ; empty if they do not.

    Both must refuse the object or neither, and for the same field, or a part of it, or what it is a part of.
    """
    if ("status" in kueue) != ("status" in plane):
        refused, by = (kueue, "Kueue") if "status" in kueue else (plane, "the plane")
        return f"only {by} refuses it: {refused['message'][:300]}"
    if "status" not in kueue or _DECODED.search(kueue["message"]):
        return ""
    expected, named = _fields(kueue), _fields(plane)
    is_same = any(_is_part(one, other) for one in expected for other in named)
    return "" if is_same or not expected else f"Kueue names {sorted(expected)}, the plane {sorted(named)}"


def _is_part(one: str, other: str) -> bool:
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _fields(answer: Object) -> set[str]:
    """The fields that a refusal names: those in the message, because webhooks give no causes."""
    fields = {re.sub(r"\[[^]]*\]|\.\d+", "", field) for field in _FIELD.findall(answer["message"])}
    return {_RENAMED.get(field, field) for field in fields}


def reason_to_differ(case: ObjectCase, kueue: Object) -> str:
    """Why the plane answers other than Kueue on purpose; empty if it must not."""
    (change,) = case.patch
    for pattern, is_meant, reason in _REASONS:
        if re.search(pattern, f"{case.sample}:{change['path']}") and is_meant(change.get("value"), kueue):
            return reason
    return ""


def _always(_value: Any, _kueue: Object) -> bool:
    return True


def _is_accepted(_value: Any, kueue: Object) -> bool:
    return "status" not in kueue


def _is_refused(_value: Any, kueue: Object) -> bool:
    return "status" in kueue


def _is_fraction(value: Any, _kueue: Object) -> bool:
    return isinstance(value, float)


def _is_out_of_range(value: Any, kueue: Object) -> bool:
    return isinstance(value, int) and abs(value) > _MAX_INT32 and _is_accepted(value, kueue)


def _is_null(value: Any, _kueue: Object) -> bool:
    return value in (None, [None])


# Which requests, by the sample and the path; of which values and answers; and why.
_REASONS: list[tuple[str, Callable[[Any, Object], bool], str]] = [
    ("", _is_out_of_range, "Go programs, Kueue among them, cannot read a number beyond 32 bits in this field"),
    ("/fairSharing/weight$", _is_accepted, "a weight has to be a number that a share can be divided by"),
    ("^cluster-queue.*Limit$", _is_accepted, "Kueue's webhook rewrites quantities before its schema refuses them"),
    ("^(cluster-queue|check|reserved)-v1beta1:", _is_accepted, "what v1beta2 refuses is refused in v1beta1"),
    ("-v1beta1:", _is_refused, "v1beta1 is converted before it is validated, without an error for a field it loses"),
    ("topolog|opologyRequest", _is_accepted, "topologies are not supported"),
    ("/nominalQuota$", _is_refused, "Kueue reads a missing quota as 0, and then names the limit that is larger"),
    ("/(requests|limits|overhead)/", _is_null, "Kueue reads null as no request at all"),
    ("/overhead/", _is_accepted, "no pod can have a negative overhead, or a fraction of a device"),
    ("/values", _is_null, "Kueue reads null as an empty value"),
    ("", _is_fraction, "Kueue's rules fail for 1.0, its decoders for 1.0 in a template"),
    ("/(env|ports)$", _is_refused, "pods may have these twice, and their jobs must not wait for a Workload for ever"),
    ("/schedulingGroup$", _is_refused, "a field of a newer Kubernetes"),
]
REASONS = {reason for _, _, reason in _REASONS}
