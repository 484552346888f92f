"""Where the logs of a removed pod are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchyard.node.pod.sandbox import log_directory

OWN, OWNER = "11111111-2222-3333-4444-555555555555", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"


@pytest.mark.parametrize(
    ("uid", "directory"),
    [(OWNER, OWNER), ("/etc/x", OWN), ("../..", OWN), ("", OWN), (f"{OWNER}\n", OWN), ("." * 36, OWN)],
)
def test_the_uid_of_a_controller_leads_nowhere_else(uid: str, directory: str) -> None:
    metadata = {"name": "p", "uid": OWN, "ownerReferences": [{"uid": "x"}, {"uid": uid, "controller": True}]}
    assert log_directory(Path("/logs"), {"metadata": metadata}) == Path("/logs") / directory / "p"
    assert log_directory(Path("/logs"), {"metadata": {"name": "p", "uid": OWN}}) == Path("/logs") / OWN / "p"
