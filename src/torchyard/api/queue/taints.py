"""Taints and tolerations of flavors and of admission checks: Kueue's rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchyard.api import checks, field_errors
from torchyard.api import names as any_names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_EFFECT_RULE = "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'"


def taint_rules(taints: Iterable[Object], path: str) -> list[FieldError]:
    """The rules of Kueue's schema."""
    is_valid = all(taint.get("effect") in _EFFECTS for taint in taints)
    return [] if is_valid else [field_errors.invalid(path, "array", _EFFECT_RULE)]


def toleration_rules(tolerations: Sequence[Object], path: str) -> list[FieldError]:
    """The rules of Kueue's schema."""
    broken = {
        "operator must be Exists when 'key' is empty, which means 'match all values and all keys'": any(
            toleration.get("key") is None and toleration.get("operator") != "Exists" for toleration in tolerations
        ),
        "effect must be 'NoExecute' when 'tolerationSeconds' is set": any(
            toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute"
            for toleration in tolerations
        ),
        "supported toleration values: 'Equal'(default), 'Exists'": any(
            toleration.get("operator") not in (None, "Equal", "Exists") for toleration in tolerations
        ),
        "a value must be empty when 'operator' is 'Exists'": any(
            toleration.get("operator") == "Exists" and toleration.get("value") is not None for toleration in tolerations
        ),
        _EFFECT_RULE: any(toleration.get("effect") not in (None, *_EFFECTS) for toleration in tolerations),
    }
    return [field_errors.invalid(path, "array", text) for text, is_broken in broken.items() if is_broken]


def check_taints(taints: Sequence[Object], path: str, errs: list[FieldError]) -> None:
    """The rules of Kueue's webhook."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        at, key, value = f"{path}[{index}]", taint.get("key") or "", taint.get("value") or ""
        checks.report_problems(any_names.qualified_name_problems(key), f"{at}.key", key, errs)
        if problems := any_names.label_value_problems(value):
            errs.append(field_errors.invalid(f"{at}.value", value, ";".join(problems)))
        if (key, taint["effect"]) in seen:
            duplicate = field_errors.duplicate(at, taint)
            detail = "taints must be unique by key and effect pair"
            errs.append(duplicate._replace(message=f"{duplicate.message}: {detail}"))
        seen.add((key, taint["effect"]))


def check_toleration_keys(tolerations: Sequence[Object], path: str, errs: list[FieldError]) -> None:
    """The rule of Kueue's webhook."""
    for index, toleration in enumerate(tolerations):
        key = toleration.get("key")
        if key:
            checks.report_problems(any_names.qualified_name_problems(key), f"{path}[{index}].key", key, errs)
