"""The progress of a job in the wire format of KEP-2779 (`trainerStatus`): checked, and as a text for `kubectl get`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.times import TimeError, human_duration, parse_rfc3339

TRAINER_STATUS = "trainerStatus"
MAX_METRICS, MAX_TEXT = 256, 64
FIELDS = ("progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime")
_LOSSES = ("loss", "train_loss", "train/loss", "training_loss", "trainloss")


def trainer_status(percent: int | None, remaining: int | None, metrics: Mapping[str, str], updated: str) -> Object:
    status: Object = {"lastUpdatedTime": updated}
    if percent is not None:
        status["progressPercentage"] = percent
    if remaining is not None:
        status["estimatedRemainingSeconds"] = remaining
    if metrics:
        status["metrics"] = [{"name": name, "value": value} for name, value in metrics.items()]
    return status


def trainer_status_errors(status: Any, path: str = "status.trainerStatus") -> list[FieldError]:
    """What the schema refuses, and what upstream's rule requires."""
    if not isinstance(status, dict):
        return [field_errors.wrong_type(path, status, "must be an object")]
    errs: list[FieldError] = []
    for field, largest in (("progressPercentage", 100), ("estimatedRemainingSeconds", 2**31 - 1)):
        value = status.get(field)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            errs.append(field_errors.wrong_type(f"{path}.{field}", value, "must be an integer"))
        elif not 0 <= value <= largest:
            errs.append(field_errors.invalid(f"{path}.{field}", value, f"must be between 0 and {largest}"))
    errs += _metric_errors(status.get("metrics"), f"{path}.metrics")
    return errs + _time_errors(status.get("lastUpdatedTime"), path)


def _metric_errors(metrics: Any, path: str) -> list[FieldError]:
    if metrics is None:
        return []
    if not isinstance(metrics, list):
        return [field_errors.wrong_type(path, type(metrics).__name__, "must be a list")]
    if len(metrics) > MAX_METRICS:
        return [field_errors.invalid(path, len(metrics), f"must have at most {MAX_METRICS} items")]
    errs = []
    for index, metric in enumerate(metrics):
        for field in ("name", "value"):
            text = metric.get(field) if isinstance(metric, dict) else None
            if not isinstance(text, str) or not 1 <= len(text) <= MAX_TEXT:
                place = f"{path}[{index}].{field}"
                errs.append(field_errors.invalid(place, text, f"must be a string of 1 to {MAX_TEXT} characters"))
    return errs


def _time_errors(value: Any, path: str) -> list[FieldError]:
    if value is None:
        return [field_errors.invalid(path, "object", "lastUpdatedTime is required when trainerStatus is present")]
    try:
        parse_rfc3339(value)
    except (TimeError, TypeError):
        return [field_errors.invalid(f"{path}.lastUpdatedTime", value, "must be a time, such as 2026-01-01T00:00:00Z")]
    return []


def metrics_by_name(status: Object) -> dict[str, str]:
    return {metric["name"]: metric["value"] for metric in status.get("metrics") or ()}


def progress_text(status: Object, *, is_over: bool = False) -> str:
    """`45%, 3m20s left, loss 0.31`. A job that is over has no time left."""
    parts = []
    percent, remaining = status.get("progressPercentage"), status.get("estimatedRemainingSeconds")
    if percent is not None:
        parts.append(f"{percent}%")
    if remaining and not is_over:
        parts.append(f"{human_duration(timedelta(seconds=remaining))} left")
    metrics = metrics_by_name(status)
    if percent is None and "epoch" in metrics:
        parts.append(f"epoch {_short(metrics['epoch'])}")
    loss = loss_of(metrics)
    if loss is not None:
        parts.append(f"loss {_short(loss)}")
    return ", ".join(parts)


def loss_of(metrics: Mapping[str, str]) -> str | None:
    """The loss of the training, by the names that programs give it."""
    lower = {name.lower(): value for name, value in metrics.items()}
    return next((lower[name] for name in _LOSSES if name in lower), None)


def _short(text: str) -> str:
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text


def report_time(status: Object) -> datetime:
    return parse_rfc3339(status["lastUpdatedTime"])
