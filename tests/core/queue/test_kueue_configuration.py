"""Kueue's configuration file: which fields are used, and which are rejected."""

from __future__ import annotations

import pytest

from torchyard.api.errors import YardError
from torchyard.core.queue.kueue_configuration import load_queue_settings
from torchyard.core.queue.settings import AdmissionFairSharing, FairSharing, QueueSettings

NEW = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
OLD = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
ALL = """waitForPodsReady:
  timeout: 10m
  recoveryTimeout: 90s
  blockAdmission: true
  requeuingStrategy: {timestamp: Eviction, backoffLimitCount: 5, backoffBaseSeconds: 10, backoffMaxSeconds: 100}
"""
ALL_SETTINGS = QueueSettings(
    timeout=600,
    recovery_timeout=90,
    block_admission=True,
    backoff_limit=5,
    backoff_base=10,
    backoff_max=100,
    pods_ready=True,
)
ACCEPTED = {
    "empty": (NEW, QueueSettings()),
    "every field": (NEW + ALL, ALL_SETTINGS),
    "fields about Kueue's process": (NEW + "health: {}\nleaderElection: {leaderElect: true}\n", QueueSettings()),
    "disabled": (NEW + "waitForPodsReady: {enable: false, blockAdmission: true}\n", QueueSettings(pods_ready=False)),
    "fair sharing": (
        NEW + "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}\n",
        QueueSettings(fair_sharing=FairSharing()),
    ),
    "v1beta1 has default strategies": (
        OLD + "fairSharing: {enable: true}\n",
        QueueSettings(pods_ready=False, fair_sharing=FairSharing()),
    ),
    "one strategy": (
        NEW + "fairSharing: {preemptionStrategies: [LessThanInitialShare]}\n",
        QueueSettings(fair_sharing=FairSharing(("LessThanInitialShare",))),
    ),
    "v1beta1 has a switch": (OLD + "fairSharing: {enable: false}\n", QueueSettings(pods_ready=False)),
    "admission fair sharing": (
        NEW + "admissionFairSharing: {usageHalfLifeTime: 168h, usageSamplingInterval: 1m, resourceWeights: {cpu: 2}}\n",
        QueueSettings(admission_fair_sharing=AdmissionFairSharing(168 * 3600, 60, {"cpu": 2})),
    ),
    "pods have as long to recover as to start": (
        NEW + "waitForPodsReady: {timeout: 10m}\n",
        QueueSettings(timeout=600, recovery_timeout=600),
    ),
    "v1beta1 does not wait by default": (OLD, QueueSettings(pods_ready=False)),
    "v1beta1 blocks admission if it waits": (
        OLD + "waitForPodsReady: {enable: true}\n",
        QueueSettings(timeout=300, recovery_timeout=300, block_admission=True),
    ),
}


@pytest.mark.parametrize(("text", "expected"), ACCEPTED.values(), ids=ACCEPTED)
def test_configuration_is_read(text: str, expected: QueueSettings) -> None:
    assert load_queue_settings(text) == expected


REJECTED = {
    "invalid YAML": ("a: [", "is not valid YAML"),
    "empty file": ("", "apiVersion: Required value"),
    "other kind": ("kind: Pod\napiVersion: v1", 'apiVersion: Unsupported value: "v1"'),
    "unsupported field": (NEW + "multiKueue: {}", "multiKueue: Forbidden: not supported"),
    "fair sharing that v1beta2 enables by its presence": (
        NEW + "fairSharing: {enable: true}",
        "fairSharing.enable: Forbidden: unknown field",
    ),
    "fair sharing without strategies": (
        NEW + "fairSharing: {}",
        "fairSharing.preemptionStrategies: Required value: must be specified",
    ),
    "strategies in the wrong order": (
        NEW + "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}",
        "fairSharing.preemptionStrategies: Unsupported value",
    ),
    "negative resource weight": (
        NEW + "admissionFairSharing: {usageHalfLifeTime: 1h, resourceWeights: {cpu: -1}}",
        "admissionFairSharing.resourceWeights[cpu]: Invalid value: -1: must be a number, 0 or more",
    ),
    "fair sharing as a flag": (NEW + "fairSharing: true", "fairSharing: Invalid value: true: must be a mapping"),
    "fair sharing as a number in v1beta1": (OLD + "fairSharing: 1", "fairSharing: Invalid value: 1: must be a mapping"),
    "admission fair sharing as a number": (
        NEW + "admissionFairSharing: 3",
        "admissionFairSharing: Invalid value: 3: must be a mapping",
    ),
    "resource weights as a list": (
        NEW + "admissionFairSharing: {resourceWeights: [a]}",
        "admissionFairSharing.resourceWeights: Invalid value",
    ),
    "strategies as a number": (
        NEW + "fairSharing: {preemptionStrategies: 5}",
        "fairSharing.preemptionStrategies: Invalid value: 5: must be a list of names",
    ),
    "strategies as a string": (
        NEW + "fairSharing: {preemptionStrategies: LessThanInitialShare}",
        'fairSharing.preemptionStrategies: Invalid value: "LessThanInitialShare": must be a list of names',
    ),
    "strategies that are not names": (
        NEW + "fairSharing: {preemptionStrategies: [{a: b}]}",
        "fairSharing.preemptionStrategies: Invalid value",
    ),
    "resource weight that is not a number": (
        NEW + "admissionFairSharing: {resourceWeights: {cpu: .nan}}",
        "admissionFairSharing.resourceWeights[cpu]: Invalid value",
    ),
    "infinite resource weight": (
        NEW + "admissionFairSharing: {resourceWeights: {cpu: .inf}}",
        "admissionFairSharing.resourceWeights[cpu]: Invalid value",
    ),
    "waiting as a number": (NEW + "waitForPodsReady: 5", "waitForPodsReady: Invalid value: 5: must be a mapping"),
    "requeuing as a list": (
        NEW + "waitForPodsReady: {requeuingStrategy: [1]}",
        "waitForPodsReady.requeuingStrategy: Invalid value",
    ),
    "field names of several types": (NEW + "1: a\nb: c", "1: Forbidden: not supported"),
    "file with a plain string": ("hello", "apiVersion: Required value"),
    "unhashable version": ("apiVersion: [a]\nkind: {a: b}", "apiVersion: Unsupported value"),
    "sampling without an interval": (
        NEW + "admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 0s}",
        "admissionFairSharing.usageSamplingInterval: Invalid value",
    ),
    "unknown field": (NEW + "waitForPodsReady: {timeOut: 5m}", "waitForPodsReady.timeOut: Forbidden"),
    "duration without a unit": (NEW + "waitForPodsReady: {timeout: 5}", "waitForPodsReady.timeout: Invalid value: 5"),
    "zero duration": (NEW + "waitForPodsReady: {timeout: 0s}", "must be greater than 0"),
    "invalid flag": (NEW + "waitForPodsReady: {blockAdmission: maybe}", "must be true or false"),
    "negative number": (
        NEW + "waitForPodsReady: {requeuingStrategy: {backoffBaseSeconds: -1}}",
        "waitForPodsReady.requeuingStrategy.backoffBaseSeconds: Invalid value: -1: must be a whole number",
    ),
    "unsupported timestamp": (
        NEW + "waitForPodsReady: {requeuingStrategy: {timestamp: Creation}}",
        'waitForPodsReady.requeuingStrategy.timestamp: Unsupported value: "Creation"',
    ),
}


@pytest.mark.parametrize(("text", "message"), REJECTED.values(), ids=REJECTED)
def test_unsupported_field_is_named(text: str, message: str) -> None:
    with pytest.raises(YardError) as error:
        load_queue_settings(text)
    assert message in str(error.value)
