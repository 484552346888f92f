"""One plane with a node for the tests of the SDK."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.node.support import need_network
from tests.support.yard import Yard, yard


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    need_network()
    plane = Yard(tmp_path_factory.mktemp("sdk"), controllers="*", flags=("--node",))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
        yard("down", state=plane.state, timeout=120)
