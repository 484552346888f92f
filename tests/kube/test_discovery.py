"""Looking for a kind that a server does not serve."""

from __future__ import annotations

from typing import Any, cast

import pytest

from torchyard.api.errors import StatusError, YardError
from torchyard.kube.client import Client
from torchyard.kube.discovery import find_resource


class BrokenGroup:
    """A server of which one group does not answer."""

    async def raw(self, _method: str, path: str) -> dict[str, Any]:
        if path == "/apis":
            return {"groups": [{"versions": [{"groupVersion": "metrics.example/v1"}]}]}
        if path == "/apis/metrics.example/v1":
            raise StatusError(503, "ServiceUnavailable", "the backend does not answer")
        return {"resources": []}


async def test_a_group_that_does_not_answer_does_not_hide_the_message() -> None:
    with pytest.raises(YardError, match='does not serve kind "Pood" of v1'):
        await find_resource(cast(Client, BrokenGroup()), "v1", "Pood")
