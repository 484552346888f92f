"""Kueue's configuration file: `waitForPodsReady`, `fairSharing` and `admissionFairSharing` as `QueueSettings`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import yaml

from torchyard.api import field_errors
from torchyard.api.errors import YardError
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.queue import configuration_messages
from torchyard.api.times import TimeError, parse_duration
from torchyard.core.queue.settings import (
    FINAL_SHARE,
    INITIAL_SHARE,
    AdmissionFairSharing,
    FairSharing,
    QueueSettings,
)

_GROUP = "config.kueue.x-k8s.io"
_OLD_VERSION, _VERSION = _VERSIONS = (f"{_GROUP}/v1beta1", f"{_GROUP}/v1beta2")
# These configure Kueue's own process, which does not exist here.
_PROCESS_FIELDS = frozenset(
    {
        "clientConnection",
        "controller",
        "health",
        "integrations",
        "internalCertManagement",
        "leaderElection",
        "metrics",
        "namespace",
        "webhook",
    }
)
_FIELDS = {"apiVersion", "kind", "waitForPodsReady", "fairSharing", "admissionFairSharing"}
_STRATEGIES = ((FINAL_SHARE,), (INITIAL_SHARE,), (FINAL_SHARE, INITIAL_SHARE))
_WAIT_FIELDS = {"enable", "timeout", "recoveryTimeout", "blockAdmission", "requeuingStrategy"}
_REQUEUING_FIELDS = {"timestamp", "backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds"}
_V1BETA1_TIMEOUT = 5 * 60  # the default of v1beta1


def load_queue_settings(text: str) -> QueueSettings:
    """Raises `YardError` that names each field which is not supported, and why."""
    try:
        configuration = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise YardError(configuration_messages.configuration_not_yaml(error)) from None
    reader = _ConfigurationReader()
    settings = reader.read(configuration)
    if reader.errs:
        raise YardError(
            configuration_messages.configuration_invalid(str(err) for err in reader.errs),
            hint=configuration_messages.CONFIGURATION_HINT,
        )
    return settings


class _ConfigurationReader:
    def __init__(self) -> None:
        self.errs: list[FieldError] = []

    def read(self, configuration: Any) -> QueueSettings:
        if not isinstance(configuration, dict):
            self.errs.append(field_errors.required("apiVersion", f"must be {_VERSION}, and kind Configuration"))
            return QueueSettings()
        version = configuration.get("apiVersion")
        if version not in _VERSIONS:
            self.errs.append(field_errors.not_supported("apiVersion", version, _VERSIONS))
        if configuration.get("kind") != "Configuration":
            self.errs.append(field_errors.not_supported("kind", configuration.get("kind"), ["Configuration"]))
        for field in sorted(map(str, configuration.keys() - _FIELDS - _PROCESS_FIELDS)):
            self.errs.append(field_errors.forbidden(field, configuration_messages.CONFIGURATION_FIELD_UNSUPPORTED))
        is_v1beta1 = version == _OLD_VERSION
        wait = self._section(configuration, "", "waitForPodsReady")
        settings = QueueSettings() if version == _VERSION else QueueSettings(pods_ready=False)
        if wait is not None:
            settings = self._read_wait_for_pods_ready(wait, is_v1beta1=is_v1beta1)
        return replace(
            settings,
            fair_sharing=self._read_fair_sharing(
                self._section(configuration, "", "fairSharing"), is_v1beta1=is_v1beta1
            ),
            admission_fair_sharing=self._read_admission_fair_sharing(
                self._section(configuration, "", "admissionFairSharing")
            ),
        )

    def _read_fair_sharing(self, sharing: Object | None, *, is_v1beta1: bool) -> FairSharing | None:
        """Its presence enables it, in v1beta1 together with `enable`. There the strategies have a default."""
        if sharing is None:
            return None
        path = "fairSharing"
        self._check_fields(sharing, path, {"preemptionStrategies"} | ({"enable"} if is_v1beta1 else set()))
        strategies = self._strategies(sharing, path, FairSharing.strategies if is_v1beta1 else ())
        if strategies is None:
            return None
        if not strategies:
            self.errs.append(field_errors.required(f"{path}.preemptionStrategies", "must be specified"))
        elif strategies not in _STRATEGIES:
            allowed = [", ".join(names) for names in _STRATEGIES]
            self.errs.append(field_errors.not_supported(f"{path}.preemptionStrategies", list(strategies), allowed))
        is_enabled = not is_v1beta1 or self._flag(sharing, path, "enable", False)
        return FairSharing(strategies) if is_enabled else None

    def _strategies(self, sharing: Object, path: str, default: tuple[str, ...]) -> tuple[str, ...] | None:
        value = sharing.get("preemptionStrategies") or ()
        if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
            return tuple(value) or default
        self.errs.append(
            field_errors.wrong_type(
                f"{path}.preemptionStrategies", value, configuration_messages.CONFIGURATION_NOT_A_LIST
            )
        )
        return None

    def _read_admission_fair_sharing(self, sharing: Object | None) -> AdmissionFairSharing | None:
        if sharing is None:
            return None
        path = "admissionFairSharing"
        self._check_fields(sharing, path, {"usageHalfLifeTime", "usageSamplingInterval", "resourceWeights"})
        weights = self._section(sharing, path, "resourceWeights") or {}
        for name, weight in weights.items():
            is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
            if not is_number or not math.isfinite(weight) or weight < 0:
                detail = configuration_messages.CONFIGURATION_NEGATIVE_WEIGHT
                self.errs.append(field_errors.invalid(f"{path}.resourceWeights[{name}]", weight, detail))
        interval = AdmissionFairSharing.sampling_interval
        return AdmissionFairSharing(
            half_life=self._duration(sharing, path, "usageHalfLifeTime", 0.0, may_be_zero=True),
            sampling_interval=self._duration(sharing, path, "usageSamplingInterval", interval),
            resource_weights=weights,
        )

    def _read_wait_for_pods_ready(self, wait: Object, *, is_v1beta1: bool) -> QueueSettings:
        path = "waitForPodsReady"
        self._check_fields(wait, path, _WAIT_FIELDS)
        requeuing = self._section(wait, path, "requeuingStrategy") or {}
        requeuing_path = f"{path}.requeuingStrategy"
        self._check_fields(requeuing, requeuing_path, _REQUEUING_FIELDS)
        timestamp = requeuing.get("timestamp", "Eviction")
        if timestamp != "Eviction":
            self.errs.append(field_errors.not_supported(f"{requeuing_path}.timestamp", timestamp, ["Eviction"]))
        enabled = self._flag(wait, path, "enable", not is_v1beta1)
        timeout = self._duration(wait, path, "timeout", _V1BETA1_TIMEOUT if is_v1beta1 else QueueSettings.timeout)
        limit = "backoffLimitCount"
        return QueueSettings(
            pods_ready=enabled,
            timeout=timeout,
            recovery_timeout=self._duration(wait, path, "recoveryTimeout", timeout),
            backoff_base=self._count(requeuing, requeuing_path, "backoffBaseSeconds", int(QueueSettings.backoff_base)),
            backoff_max=self._count(requeuing, requeuing_path, "backoffMaxSeconds", int(QueueSettings.backoff_max)),
            backoff_limit=self._count(requeuing, requeuing_path, limit, -1) if limit in requeuing else None,
            block_admission=enabled and self._flag(wait, path, "blockAdmission", is_v1beta1),
        )

    def _section(self, part: Object, path: str, field: str) -> Object | None:
        """A field that has fields of its own; None if it is not there."""
        value = part.get(field)
        if value is None or isinstance(value, dict):
            return value
        name = f"{path}.{field}" if path else field
        self.errs.append(field_errors.wrong_type(name, value, configuration_messages.CONFIGURATION_NOT_A_MAPPING))
        return None

    def _check_fields(self, part: Object, path: str, known: set[str]) -> None:
        for field in sorted(map(str, part.keys() - known)):
            self.errs.append(
                field_errors.forbidden(f"{path}.{field}", configuration_messages.CONFIGURATION_FIELD_UNKNOWN)
            )

    def _flag(self, part: Object, path: str, field: str, default: bool) -> bool:
        value = part.get(field, default)
        if isinstance(value, bool):
            return value
        self.errs.append(field_errors.wrong_type(f"{path}.{field}", value, "must be true or false"))
        return default

    def _count(self, part: Object, path: str, field: str, default: int) -> int:
        value = part.get(field, default)
        if value is default or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
            return value
        self.errs.append(field_errors.wrong_type(f"{path}.{field}", value, "must be a whole number, 0 or more"))
        return default

    def _duration(self, part: Object, path: str, field: str, default: float, *, may_be_zero: bool = False) -> float:
        value = part.get(field)
        if value is None:
            return default
        try:
            seconds = parse_duration(str(value)).total_seconds()
        except TimeError as error:
            self.errs.append(field_errors.invalid(f"{path}.{field}", value, str(error)))
            return default
        if seconds < 0 or (seconds == 0 and not may_be_zero):
            self.errs.append(
                field_errors.invalid(f"{path}.{field}", value, configuration_messages.CONFIGURATION_NOT_POSITIVE)
            )
        return seconds
