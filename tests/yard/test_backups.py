"""A restore replaces the store completely or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.apiserver.store.log import Log, Row

# A file size limit of 100 kB simulates a full disk; Python ignores the signal.
FULL = (
    "import resource, sys; from pathlib import Path; from torchyard.api.errors import YardError;"
    "from torchyard.yard.backups import backup, restore; one, other = map(Path, sys.argv[2:]);"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    "try: backup(one, other) if sys.argv[1] == 'backup' else restore(one, other, replace=True)\n"
    "except YardError as error: print(error.message)"
)


@pytest.mark.parametrize("operation", ["backup", "restore"])
def test_a_full_disk_changes_nothing(operation: str, tmp_path: Path) -> None:
    state, copy, target = tmp_path / "state", tmp_path / "copy.db", tmp_path / "target.db"
    state.mkdir()
    for path in (state / "store.db", copy):
        log = Log(path)
        log.append([Row(1, "/pods/a/big", 0, False, bytes(200_000))])
        log.close()
    before = (state / "store.db").read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", FULL, operation, str(state), str({"backup": target, "restore": copy}[operation])],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.startswith("cannot copy ")
    assert not [*tmp_path.glob("target*"), *state.glob("*restor*")]
    assert (state / "store.db").read_bytes() == before
