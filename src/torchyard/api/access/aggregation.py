"""Aggregated ClusterRoles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import orjson

from torchyard.api.objects import Object
from torchyard.api.selectors.labels import from_object


def aggregated_rules(role: Object, roles: Iterable[Object]) -> list[Object]:
    """Return the role's own rules, or the union of the rules of all roles that its aggregationRule selects."""
    return _rules_below(role, sorted(roles, key=lambda role: str(role["metadata"]["name"])), frozenset())


def _rules_below(role: Object, roles: Sequence[Object], above: frozenset[str]) -> list[Object]:
    selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors")
    if not selectors:
        return list(role.get("rules") or ())
    above |= {role["metadata"]["name"]}
    selecting = [from_object(selector) for selector in selectors]
    rules: dict[bytes, Object] = {}
    for other in roles:
        labels = other["metadata"].get("labels")
        if other["metadata"]["name"] not in above and any(selector.matches(labels) for selector in selecting):
            for rule in _rules_below(other, roles, above):
                rules.setdefault(orjson.dumps(rule, option=orjson.OPT_SORT_KEYS), rule)
    return list(rules.values())
