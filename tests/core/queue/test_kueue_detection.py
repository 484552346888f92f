"""How PyTorchJobs get into the queues of a cluster."""

from __future__ import annotations

import pytest

from torchyard.api.objects import Object
from torchyard.core.queue.kueue_detection import EXTERNAL, IntegrationMode, detect_kueue

GROUP = {"name": "kueue.x-k8s.io", "versions": [{"version": "v1beta1"}, {"version": "v1beta2"}]}
OLD = {"name": "kueue.x-k8s.io", "versions": [{"version": "v1beta1"}]}
HOOK = {"webhooks": [{"name": "mjob.kb.io"}, {"name": "mpytorchjob.kb.io"}]}
OTHER_HOOK = {"webhooks": [{"name": "mjob.kb.io"}]}
LISTED = {"integrations": {"externalFrameworks": [EXTERNAL]}}
BUILT_IN = {"integrations": {"frameworks": ["batch/job", "kubeflow.org/pytorchjob"]}}

CASES: dict[str, tuple[list[Object], list[Object], Object | None, IntegrationMode, str]] = {
    "no Kueue": ([{"name": "batch"}], [], None, IntegrationMode.NONE, ""),
    "built-in integration": ([GROUP], [HOOK], None, IntegrationMode.BUILT_IN, "v1beta2"),
    "built-in integration by its configuration": ([GROUP], [HOOK], BUILT_IN, IntegrationMode.BUILT_IN, "v1beta2"),
    "built-in integration off, with its webhook": ([GROUP], [HOOK], LISTED, IntegrationMode.EXTERNAL, "v1beta2"),
    "v1beta1 only": ([OLD], [HOOK], None, IntegrationMode.BUILT_IN, "v1beta1"),
    "external integration": ([GROUP], [OTHER_HOOK], LISTED, IntegrationMode.EXTERNAL, "v1beta2"),
    "external integration not listed": ([GROUP], [OTHER_HOOK], {}, IntegrationMode.EXTERNAL, "v1beta2"),
}


@pytest.mark.parametrize(("groups", "hooks", "configuration", "mode", "version"), CASES.values(), ids=CASES)
def test_mode_follows_served_groups_and_webhooks(
    groups: list[Object], hooks: list[Object], configuration: Object | None, mode: IntegrationMode, version: str
) -> None:
    integration = detect_kueue(groups, hooks, configuration)
    assert (integration.mode, integration.version) == (mode, version)
    assert integration.reasons


def test_reasons_name_the_framework_to_list() -> None:
    reason = detect_kueue([GROUP], [], {}).reasons[-1]
    assert reason == f"list {EXTERNAL} under integrations.externalFrameworks, or Kueue may queue the pods a second time"
    assert "ask the administrator" in detect_kueue([GROUP], [], None).reasons[-1]


def test_crds_without_a_manager_are_no_kueue() -> None:
    assert detect_kueue([GROUP], [], None, deployed=False).mode is IntegrationMode.NONE
