"""`yard queue why` for users who may not read everything it explains with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.queues import local, workload

from torchyard.api import errors
from torchyard.api.group_version import GroupVersionResource
from torchyard.cli import queue
from torchyard.kube.client import ObjectList


class NamespacedClient:
    """Reads the objects of one namespace only."""

    def __init__(self, error: errors.StatusError) -> None:
        self._error = error
        self._objects = {"localqueues": [local()], "workloads": [workload("mine")]}

    async def list(self, ref: GroupVersionResource, namespace: str = "", **_: Any) -> ObjectList:
        if not namespace:
            raise self._error
        return ObjectList(self._objects[ref.plural], "1")


@pytest.mark.parametrize(
    "error", [errors.forbidden("resourceflavors", "", "", "no"), errors.not_found("cohorts", "", "")], ids=str
)
def test_why_shows_the_state_to_a_user_who_may_not_read_the_quotas(error: errors.StatusError) -> None:
    client: Any = NamespacedClient(error)
    lines = asyncio.run(queue._explain(client, job="mine", namespace="default"))
    assert lines.startswith("Pending: ")


def test_why_reports_other_errors() -> None:
    client: Any = NamespacedClient(errors.StatusError(500, "InternalError", "broken"))
    with pytest.raises(errors.StatusError, match="broken"):
        asyncio.run(queue._explain(client, job="mine", namespace="default"))
