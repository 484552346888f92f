"""The sampler: every record of every epoch exactly once, for all sizes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.sampler import Permutation, StepSampler, mix64, split_micro_batches

SAMPLERS = st.builds(
    StepSampler,
    records=st.integers(1, 300),
    micro_size=st.integers(1, 9),
    micro_batches=st.integers(1, 9),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 2**63),
    shuffle=st.booleans(),
)


@given(SAMPLERS)
def test_every_record_is_in_every_epoch_exactly_once(sampler: StepSampler) -> None:
    seen: dict[int, list[int]] = {epoch: [] for epoch in range(sampler.epochs)}
    for step, micro in sampler.micro_batch_keys():
        seen[sampler.span(step).epoch] += sampler.record_ids(step, micro)
    assert all(sorted(ids) == list(range(sampler.records)) for ids in seen.values())


@given(SAMPLERS)
def test_micro_batches_tile_their_step_and_their_weights_sum_to_one(sampler: StepSampler) -> None:
    for step in range(1, sampler.steps + 1):
        spans = [sampler.micro_span(step, micro) for micro in range(sampler.micro_batches)]
        assert [s.lo for s in spans[1:]] == [s.hi for s in spans[:-1]]
        assert (spans[0].lo, spans[-1].hi) == (sampler.span(step).lo, sampler.span(step).hi)
        assert all(s.records <= sampler.micro_size for s in spans)
        assert sum(sampler.weight(step, micro) for micro in range(sampler.micro_batches)) == pytest.approx(1)


def test_only_the_last_step_of_an_epoch_is_short() -> None:
    sampler = StepSampler(records=100, micro_size=8, micro_batches=4, epochs=2)
    assert [sampler.span(step).records for step in range(1, sampler.steps + 1)] == [32, 32, 32, 4] * 2


@given(st.integers(1, 5000), st.integers(0, 2**64))
@settings(max_examples=30)
def test_a_permutation_is_a_bijection(size: int, key: int) -> None:
    permute = Permutation.from_key(size, key)
    assert sorted(map(permute, range(size))) == list(range(size))


def test_epochs_and_seeds_give_different_orders() -> None:
    sampler = StepSampler(records=1000, micro_size=100, micro_batches=10, epochs=2, seed=1)
    first, second = ([id for m in range(10) for id in sampler.record_ids(step, m)] for step in (1, 2))
    other = StepSampler(records=1000, micro_size=100, micro_batches=10, epochs=2, seed=2)
    assert first != second
    assert first != [id for m in range(10) for id in other.record_ids(1, m)]
    assert first != sorted(first)


def test_the_order_of_a_job_never_changes_between_versions() -> None:
    """A resumed job must keep its order: these numbers are part of the format."""
    sampler = StepSampler(records=1000, micro_size=4, micro_batches=2, seed=7)
    assert mix64(1, 2, 3) == GOLDEN_MIX
    assert sampler.record_ids(1, 0) == GOLDEN_IDS
    assert sampler.rng_seed(1, 0) == GOLDEN_KEY


def test_every_micro_batch_has_its_own_random_numbers() -> None:
    sampler = StepSampler(records=1000, micro_size=1, micro_batches=10)
    keys = {sampler.rng_seed(step, micro) for step, micro in sampler.micro_batch_keys()}
    assert len(keys) == 1000


@given(st.integers(1, 64), st.data())
def test_blocks_cover_every_micro_batch_and_leave_no_rank_idle(micro_batches: int, data: st.DataObject) -> None:
    world = data.draw(st.integers(1, micro_batches))
    speeds = data.draw(st.none() | st.lists(st.floats(0.1, 10), min_size=world, max_size=world))
    blocks = split_micro_batches(micro_batches, world, speeds)
    assert [micro for block in blocks for micro in block] == list(range(micro_batches))
    assert all(len(block) >= 1 for block in blocks)


def test_a_worker_at_a_third_of_the_speed_gets_a_third_of_the_work() -> None:
    assert [len(block) for block in split_micro_batches(14, 3, [3.0, 3.0, 1.0])] == [6, 6, 2]


def test_more_workers_than_micro_batches_are_refused_with_a_hint() -> None:
    with pytest.raises(ElasticError, match="at most 4 workers") as caught:
        split_micro_batches(4, 5)
    assert caught.value.code == "WorldTooLarge"


@pytest.mark.parametrize("name", ["records", "micro_size", "micro_batches", "epochs"])
def test_invalid_sizes_are_refused_by_name(name: str) -> None:
    with pytest.raises(ElasticError, match=f"{name} is 0"):
        StepSampler(**{"records": 10, "micro_size": 1, "micro_batches": 1, "epochs": 1, name: 0})  # type: ignore[arg-type]  # a table of names


GOLDEN_MIX = 17535407170941933615
GOLDEN_IDS = [569, 874, 784, 262]
GOLDEN_KEY = 3742613775070460291
