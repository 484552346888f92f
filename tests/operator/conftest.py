"""A real API server with the operator's installation."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.kubernetes import Server
from tests.support.operator import Installed, installation


@pytest.fixture
async def installed(kube: Server) -> AsyncIterator[Installed]:
    async with installation(kube) as installed:
        yield installed
