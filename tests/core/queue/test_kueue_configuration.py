"""Kueue's configuration file: what of it our queues go by, and what they refuse."""

from __future__ import annotations

import pytest

from torchyard.api.errors import YardError
from torchyard.core.queue.kueue_configuration import load_queue_settings
from torchyard.core.queue.lifecycle import QueueSettings

NEW = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
OLD = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
ALL = """waitForPodsReady:
  timeout: 10m
  recoveryTimeout: 90s
  blockAdmission: true
  requeuingStrategy: {timestamp: Eviction, backoffLimitCount: 5, backoffBaseSeconds: 10, backoffMaxSeconds: 100}
"""
EVERY = QueueSettings(
    timeout=600,
    recovery_timeout=90,
    block_admission=True,
    backoff_limit=5,
    backoff_base=10,
    backoff_max=100,
    pods_ready=True,
)
TAKEN = {
    "nothing said": (NEW, QueueSettings()),
    "everything said": (NEW + ALL, EVERY),
    "what is about Kueue's process": (NEW + "health: {}\nleaderElection: {leaderElect: true}\n", QueueSettings()),
    "off": (NEW + "waitForPodsReady: {enable: false, blockAdmission: true}\n", QueueSettings(pods_ready=False)),
    "an old file, which waits for nothing by itself": (OLD, QueueSettings(pods_ready=False)),
    "an old file that waits, and blocks then": (
        OLD + "waitForPodsReady: {enable: true}\n",
        QueueSettings(timeout=300, recovery_timeout=300, block_admission=True),
    ),
}


@pytest.mark.parametrize(("text", "expected"), TAKEN.values(), ids=TAKEN)
def test_configuration_is_read(text: str, expected: QueueSettings) -> None:
    assert load_queue_settings(text) == expected


REFUSED = {
    "no YAML": ("a: [", "is not valid YAML"),
    "nothing at all": ("", "apiVersion: Required value"),
    "another kind": ("kind: Pod\napiVersion: v1", 'apiVersion: Unsupported value: "v1"'),
    "what we do not do": (NEW + "fairSharing: {enable: true}", "fairSharing: Forbidden: not supported"),
    "a name that nobody knows": (NEW + "waitForPodsReady: {timeOut: 5m}", "waitForPodsReady.timeOut: Forbidden"),
    "a length without a unit": (NEW + "waitForPodsReady: {timeout: 5}", "waitForPodsReady.timeout: Invalid value: 5"),
    "no length": (NEW + "waitForPodsReady: {timeout: 0s}", "must be greater than 0"),
    "no flag": (NEW + "waitForPodsReady: {blockAdmission: maybe}", "must be true or false"),
    "no number": (
        NEW + "waitForPodsReady: {requeuingStrategy: {backoffBaseSeconds: -1}}",
        "waitForPodsReady.requeuingStrategy.backoffBaseSeconds: Invalid value: -1: must be a whole number",
    ),
    "another order": (
        NEW + "waitForPodsReady: {requeuingStrategy: {timestamp: Creation}}",
        'waitForPodsReady.requeuingStrategy.timestamp: Unsupported value: "Creation"',
    ),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_unsupported_field_is_named(text: str, said: str) -> None:
    with pytest.raises(YardError) as error:
        load_queue_settings(text)
    assert said in str(error.value)
