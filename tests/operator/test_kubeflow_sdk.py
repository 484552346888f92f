"""The real kubeflow SDK 0.5, unmodified, against the operator in containers of a real node. Full effort only."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clients.test_kubeflow_trainer_sdk import STEPS, steps
from tests.operator.test_node import SPACE, Node, cluster, node

pytestmark = [pytest.mark.cluster, pytest.mark.clients, pytest.mark.timeout(3000)]
__all__ = ["cluster", "node"]  # fixtures


def test_every_call_of_the_sdk_works_on_a_real_node(cluster: Path, node: Node) -> None:
    assert steps(cluster, SPACE) == STEPS
