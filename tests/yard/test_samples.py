"""The samples of a plane survive its restart, and a file that is not a database does not stop it."""

from __future__ import annotations

import stat
from pathlib import Path

from torchyard.core.samples.table import SampledJob
from torchyard.yard.sample_store import SampleStore, take_changes

JOB = SampledJob("default", "PyTorchJob", "mnist")


def test_samples_are_saved_and_loaded(tmp_path: Path) -> None:
    store = SampleStore(tmp_path / "samples.db")
    table = store.load()
    table.record(JOB, "worker-0", "loss", 10.0, 2.0)
    other = JOB._replace(name="other")
    table.record(other, "worker-0", "loss", 11.0, 1.0)
    store.save(*take_changes(table))
    assert take_changes(table) == ([], [])
    loaded = store.load()
    assert loaded.document([JOB], 0.0) == table.document([JOB], 0.0)
    loaded.remove_older(10.5)
    store.save(*take_changes(loaded))
    assert len(store.load()) == 1
    assert stat.S_IMODE((tmp_path / "samples.db").stat().st_mode) == 0o600


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "samples.db"
    path.write_bytes(b"not a database" * 1000)
    assert len(SampleStore(path).load()) == 0
    table = SampleStore(path).load()
    table.record(JOB, "", "loss", 10.0, 2.0)
    SampleStore(path).save(*take_changes(table))
    assert len(SampleStore(path).load()) == 1
