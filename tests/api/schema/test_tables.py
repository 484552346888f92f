"""The tables in the package match the generator's output for a real server's description."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.kubernetes import ROOT

SOURCE = ROOT.parent / "shared" / "k8s"
DATA = ROOT / "src" / "torchyard" / "api" / "schema" / "data"


@pytest.mark.cluster
def test_the_tables_match_the_generator(kubernetes_assets: Path, tmp_path: Path) -> None:
    if not (SOURCE / "protobuf-fields.json").exists():
        pytest.skip("the description of a real server that the tables were made from is not here")
    generator = [sys.executable, str(ROOT / "tools" / "generate_tables.py")]
    subprocess.run([*generator, SOURCE, kubernetes_assets / "kube-apiserver", tmp_path], check=True, timeout=120)
    for name in ("types.txt", "protobuf.txt", "resources.json"):
        assert (tmp_path / name).read_text() == (DATA / name).read_text(), name


def test_the_tables_stay_small() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 430_000
