"""Kueue's configuration file, as far as it is about workloads: what waits for pods, for how long, how often again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from torchyard.api import field_errors
from torchyard.api.errors import YardError
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.times import TimeError, parse_duration
from torchyard.core.queue.lifecycle import QueueSettings

_GROUP = "config.kueue.x-k8s.io"
_VERSIONS = (f"{_GROUP}/v1beta1", f"{_GROUP}/v1beta2")
# About Kueue's own process, which there is none of here.
_PROCESS = frozenset(
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
_OLD_TIMEOUT = 5 * 60  # what v1beta1 means by no timeout


def load_queue_settings(text: str) -> QueueSettings:
    """Raises `YardError` that names each field we do not take, and why."""
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise YardError(f"the queues' configuration is no YAML: {error}") from None
    reader = _Reader()
    settings = reader.configuration(read)
    if reader.found:
        said = "; ".join(str(one) for one in reader.found)
        raise YardError(
            f"the queues' configuration cannot be used: {said}", hint="correct these fields, or take them out"
        )
    return settings


class _Reader:
    def __init__(self) -> None:
        self.found: list[FieldError] = []

    def configuration(self, read: Any) -> QueueSettings:
        if not isinstance(read, dict):
            self.found.append(field_errors.required("apiVersion", f"{_VERSIONS[-1]}, and kind Configuration"))
            return QueueSettings()
        version = read.get("apiVersion")
        if version not in _VERSIONS:
            self.found.append(field_errors.not_supported("apiVersion", version, _VERSIONS))
        if read.get("kind") != "Configuration":
            self.found.append(field_errors.not_supported("kind", read.get("kind"), ["Configuration"]))
        for name in read.keys() - {"apiVersion", "kind", "waitForPodsReady"} - _PROCESS:
            self.found.append(field_errors.forbidden(name, "not supported by these queues"))
        waits = read.get("waitForPodsReady")
        if waits is None:
            return QueueSettings() if version == _VERSIONS[-1] else QueueSettings(pods_ready=False)
        return self._waits(waits, is_old=version == _VERSIONS[0])

    def _waits(self, waits: Object, *, is_old: bool) -> QueueSettings:
        at = "waitForPodsReady"
        self._only(waits, at, {"enable", "timeout", "recoveryTimeout", "blockAdmission", "requeuingStrategy"})
        again = waits.get("requeuingStrategy") or {}
        where = f"{at}.requeuingStrategy"
        self._only(again, where, {"timestamp", "backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds"})
        if again.get("timestamp", "Eviction") != "Eviction":
            self.found.append(field_errors.not_supported(f"{where}.timestamp", again["timestamp"], ["Eviction"]))
        enabled = self._flag(waits, at, "enable", not is_old)
        timeout = self._length(waits, at, "timeout", _OLD_TIMEOUT if is_old else QueueSettings.timeout)
        return QueueSettings(
            pods_ready=enabled,
            timeout=timeout,
            recovery=self._length(waits, at, "recoveryTimeout", timeout if is_old else QueueSettings.recovery),
            backoff_base=self._number(again, where, "backoffBaseSeconds", int(QueueSettings.backoff_base)),
            backoff_most=self._number(again, where, "backoffMaxSeconds", int(QueueSettings.backoff_most)),
            backoff_limit=self._number(again, where, "backoffLimitCount", -1) if "backoffLimitCount" in again else None,
            block_admission=enabled and self._flag(waits, at, "blockAdmission", is_old),
        )

    def _only(self, part: Object, at: str, known: set[str]) -> None:
        for name in sorted(part.keys() - known):
            self.found.append(field_errors.forbidden(f"{at}.{name}", "not known"))

    def _flag(self, part: Object, at: str, name: str, default: bool) -> bool:
        return bool(self._value(part, f"{at}.{name}", default, lambda said: isinstance(said, bool), "true or false"))

    def _number(self, part: Object, at: str, name: str, default: int) -> int:
        def is_count(said: Any) -> bool:
            return isinstance(said, int) and not isinstance(said, bool) and said >= 0

        return int(self._value(part, f"{at}.{name}", default, is_count, "a whole number, 0 or more"))

    def _length(self, part: Object, at: str, name: str, default: float) -> float:
        said = part.get(name)
        if said is None:
            return default
        try:
            length = parse_duration(str(said)).total_seconds()
        except TimeError as error:
            self.found.append(field_errors.invalid(f"{at}.{name}", said, str(error)))
            return default
        if length <= 0:
            self.found.append(field_errors.invalid(f"{at}.{name}", said, "must be longer than nothing"))
        return length

    def _value(self, part: Object, at: str, default: Any, is_right: Callable[[Any], bool], wanted: str) -> Any:
        said = part.get(at.rpartition(".")[2], default)
        if said is default or is_right(said):
            return said
        self.found.append(field_errors.wrong_type(at, said, f"must be {wanted}"))
        return default
