"""How fast an autoscaler may scale: stabilization windows and scaling policies (`spec.behavior`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from torchyard.api.objects import Object
from torchyard.api.workload import autoscaler_messages as messages

Condition = tuple[str, str]  # reason, message

_UP: Object = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_DOWN: Object = {
    "stabilizationWindowSeconds": 300,
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


@dataclass(frozen=True, slots=True)
class ScaleHistory:
    """Recent recommendations and changes, newest last. Kept in memory only, as upstream does."""

    recommended: tuple[tuple[datetime, int], ...] = ()
    changed: tuple[tuple[datetime, int], ...] = ()  # the change in replicas

    def recommend(self, now: datetime, count: int, keep: float) -> ScaleHistory:
        since = now - timedelta(seconds=keep)
        recent = tuple(entry for entry in self.recommended if entry[0] >= since)
        return ScaleHistory((*recent, (now, count)), self.changed)

    def change(self, now: datetime, by: int, keep: float) -> ScaleHistory:
        since = now - timedelta(seconds=keep)
        recent = tuple(entry for entry in self.changed if entry[0] >= since)
        return ScaleHistory(self.recommended, (*recent, (now, by)))


def rules(hpa: Object) -> tuple[Object, Object]:
    """The scaling rules for scaling up and for scaling down, with upstream's defaults."""
    behavior = hpa["spec"].get("behavior") or {}
    up, down = behavior.get("scaleUp") or {}, behavior.get("scaleDown") or {}
    return ({**_UP, **_set(up)}, {**_DOWN, **_set(down)})


def history_seconds(hpa: Object) -> float:
    """For how many seconds history matters."""
    scaling_rules = rules(hpa)
    periods: list[float] = [policy["periodSeconds"] for rule in scaling_rules for policy in rule.get("policies") or ()]
    windows: list[float] = [rule["stabilizationWindowSeconds"] for rule in scaling_rules]
    return max([15.0, *periods, *windows])


def stabilize(hpa: Object, history: ScaleHistory, now: datetime, current: int, desired: int) -> int:
    """Limit the desired count to the range of the recommendations within the stabilization windows."""
    up, down = rules(hpa)
    low = _recent(history, now, up["stabilizationWindowSeconds"], desired)
    high = _recent(history, now, down["stabilizationWindowSeconds"], desired)
    return min(max(current, min(low)), max(high))


def limit_rate(
    hpa: Object, history: ScaleHistory, now: datetime, current: int, desired: int
) -> tuple[int, Condition | None]:
    """Move towards `desired` as far as the scaling policies allow. The condition says so if that is not all the way."""
    up, down = rules(hpa)
    if desired > current:
        most = _limit(up, history, now, current, up=True)
        return (desired, None) if desired <= most else (max(most, current), messages.TOO_FAST_UP)
    if desired < current:
        least = _limit(down, history, now, current, up=False)
        return (desired, None) if desired >= least else (min(least, current), messages.TOO_FAST_DOWN)
    return desired, None


def _set(rule: Object) -> Object:
    return {name: value for name, value in rule.items() if value is not None}


def _recent(history: ScaleHistory, now: datetime, seconds: float, desired: int) -> list[int]:
    since = now - timedelta(seconds=seconds)
    return [desired, *(count for at, count in history.recommended if at > since)]


def _limit(rule: Object, history: ScaleHistory, now: datetime, current: int, *, up: bool) -> int:
    if rule["selectPolicy"] == "Disabled":
        return current
    limits: list[int] = []
    for policy in rule["policies"]:
        since = now - timedelta(seconds=policy["periodSeconds"])
        done = sum(by for at, by in history.changed if at > since and (by > 0) is up)
        start, value = current - done, policy["value"]
        if policy["type"] == "Pods":
            limits.append(start + value if up else start - value)
        else:
            limits.append(math.ceil(start * (1 + value / 100)) if up else math.floor(start * (1 - value / 100)))
    furthest = rule["selectPolicy"] == "Max"
    return max(limits) if up is furthest else min(limits)
