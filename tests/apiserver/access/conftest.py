"""Fixtures of the access tests: a policy in memory and the authoriser over it."""

from __future__ import annotations

import pytest
from tests.apiserver.access.memory_lister import MemoryLister
from tests.apiserver.access.rbac_objects import POLICY

from torchyard.apiserver.access.bootstrap_policy import bootstrap_policy
from torchyard.apiserver.access.rbac import Authorizer


@pytest.fixture
def memory() -> MemoryLister:
    return MemoryLister(*bootstrap_policy(), *POLICY)


@pytest.fixture
def authorizer(memory: MemoryLister) -> Authorizer:
    return Authorizer(memory)
