"""Streaming datasets: every record once an epoch, from two to four workers to one, under kills."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)
from hypothesis import given
from hypothesis import strategies as st
from tests.elastic.forked_workers import ForkServer, SmallJob
from tests.elastic.zoo_programs import PROGRAMS, digest_of

from torchyard import elastic
from torchyard.elastic.chaos import count_applied_records
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.worker.data_source import read_data
from torchyard.elastic.worker.shards import ShardReader
from torchyard.elastic.worker.streaming import HuggingFaceShards

pytestmark = pytest.mark.train
PROGRAM = PROGRAMS / "streamed.py"
PACKAGES = {"datasets": "datasets", "datasets_shuffled": "datasets", "litdata": "litdata", "mosaic": "streaming"}


class Numbers:
    """Shards of consecutive numbers; remembers what was opened."""

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = lengths
        self.opened: list[tuple[int, int]] = []

    def shard_lengths(self) -> list[int]:
        return self._lengths

    def read_shard(self, shard: int, offset: int):  # type: ignore[no-untyped-def]
        self.opened.append((shard, offset))
        first = sum(self._lengths[:shard])
        return iter(range(first + offset, first + self._lengths[shard]))


class _ShuffledPart:
    ex_iterable = None


@pytest.mark.parametrize("part", [SimpleNamespace(ex_iterable=None), _ShuffledPart()])
def test_a_shuffled_part_of_an_interleaved_dataset_is_read_from_its_start(part: Any) -> None:
    interleaved = SimpleNamespace(ex_iterables=[SimpleNamespace(ex_iterable=None), SimpleNamespace(ex_iterable=part)])
    dataset = SimpleNamespace(num_shards=1, _shuffling=None, _ex_iterable=SimpleNamespace(ex_iterable=interleaved))
    assert HuggingFaceShards(dataset)._seekable is not isinstance(part, _ShuffledPart)


def test_a_dataset_with_the_two_methods_is_a_sharded_dataset() -> None:
    assert isinstance(Numbers([1]), elastic.ShardedDataset)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any),
    st.integers(1, 4),
    st.integers(1, 5),
    st.booleans(),
    st.integers(0, 3),
)
def test_every_record_is_read_once_an_epoch(
    lengths: list[int], micro_size: int, micro_batches: int, shuffle: bool, seed: int
) -> None:
    sampler = StepSampler(sum(lengths), micro_size, micro_batches, 2, seed, shuffle=False)
    reader = ShardReader(Numbers(lengths), sampler, shuffle=shuffle)
    epochs: list[list[int]] = [[], []]
    for step, micro in sampler.micro_batch_keys():
        records = reader.read(step, micro)
        assert records == reader.record_ids(step, micro)
        assert records == ShardReader(Numbers(lengths), sampler, shuffle=shuffle).read(step, micro)
        epochs[sampler.span(step).epoch] += records
    assert [sorted(epoch) for epoch in epochs] == [list(range(sum(lengths)))] * 2


def test_a_worker_reads_its_parts_in_sequence_and_opens_a_shard_once() -> None:
    numbers = Numbers([40, 40])
    sampler = StepSampler(80, 5, 4)
    reader = ShardReader(numbers, sampler, shuffle=False)
    for step in range(1, sampler.steps + 1):
        for micro in (0, 1):  # the world's other worker reads the second shard
            reader.read(step, micro)
    assert numbers.opened == [(0, 0), (0, 20)]


def test_a_shard_that_became_shorter_is_reported() -> None:
    numbers = Numbers([10])
    reader = ShardReader(numbers, StepSampler(10, 5), shuffle=False)
    numbers._lengths = [7]
    reader.read(1, 0)
    with pytest.raises(ElasticError, match="shard 0 has only 7 records, but had 10"):
        reader.read(2, 0)


def test_a_sampler_for_a_stream_is_refused() -> None:
    with pytest.raises(ElasticError) as caught:
        read_data(Numbers([4]), batch=2, shuffle=True, sampler=[0, 1], collate=None, loaders=None, seed=0)
    assert caught.value.code == "StreamSampler"


def test_a_compressed_tar_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"\x1f\x8b" + b"0" * 1000)
    with pytest.raises(ElasticError, match="is not a readable tar file"):
        elastic.TarShards([tmp_path / "a.tar"])


def _import_problem(package: str) -> str:
    """Why a package cannot be imported."""
    done = subprocess.run(
        [sys.executable, PROGRAM, "import", package], capture_output=True, text=True, check=False, timeout=120
    )
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


@pytest.mark.parametrize("kind", ["own", "tar", "datasets", "datasets_shuffled", "litdata", "mosaic"])
def test_two_four_and_one_workers_under_kills_see_every_record_once(
    kind: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    if kind in PACKAGES and (problem := _import_problem(PACKAGES[kind])):
        pytest.skip(f"the package {PACKAGES[kind]} cannot be used in this environment: {problem}")
    data = tmp_path / "data"
    subprocess.run([sys.executable, PROGRAM, "prepare", kind, data], check=True, capture_output=True, timeout=120)
    alone = tmp_path / "alone"
    argv = [str(PROGRAM), kind, str(data)]
    pid = fork_server.fork(argv, {"TORCHYARD_ELASTIC_COORDINATOR": "", "ZOO_HOLD": ""}, alone)
    assert fork_server.wait(pid) == 0, alone.read_text()
    job = SmallJob(fork_server, argv, tmp_path, workers=2)
    job.wait_for_world(2, step=2)
    job.kill(job.server.coordinator.membership.world[0])
    for _ in range(3):
        job.add_worker()
    job.scale(4)
    job.wait_for_world(4, step=3)
    for name in job.server.coordinator.membership.world[2:]:
        job.kill(name)
    job.scale(1)
    job.wait_for_world(1, step=4)
    output = job.finish()
    assert set(re.findall(r"counts (.*)", output + alone.read_text())) == {"[3.0]"}, output
    assert digest_of(output) == digest_of(alone.read_text())
    assert set(count_applied_records(tmp_path).values()) == {1}


def test_the_environment_variable_that_asks_for_all_packages_finds_them() -> None:
    """`make test-long` installs them; there nothing may be skipped silently."""
    if os.environ.get("TORCHYARD_FRAMEWORKS") != "1":
        pytest.skip("this environment has no frameworks (see frameworks-venv in the Makefile)")
    missing = [name for name in (*PACKAGES.values(), "transformers", "lightning") if not importlib.util.find_spec(name)]
    assert not missing
