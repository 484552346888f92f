"""Determines which records a step consumes: a pure function of the job's settings, never of its membership.

Nothing here depends on which workers are alive. So every worker, and a coordinator that has just been restarted, can
compute the records of any step. This makes prefetching safe and a replay identical. Standard library only; the same
arithmetic works on Python integers and on int64 tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.elastic.errors import ElasticError

ROUNDS = 4
_WORD = 0xFFFFFFFF
_WIDE = 0xFFFFFFFFFFFFFFFF


def mix64(*parts: int) -> int:
    """Return a well-distributed 64-bit number from any integers (the chained finalizer of splitmix64)."""
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = (state + (part & _WIDE) * 0xBF58476D1CE4E5B9 + 0x9E3779B97F4A7C15) & _WIDE
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _WIDE
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _WIDE
        state ^= state >> 31
    return state


@dataclass(frozen=True, slots=True)
class Permutation:
    """A keyed bijection of range(size) in constant memory: a Feistel network, repeated until the value fits."""

    size: int
    half: int
    keys: tuple[int, ...]

    @classmethod
    def from_key(cls, size: int, *key: int) -> Permutation:
        half = max(1, ((size - 1).bit_length() + 1) // 2)
        return cls(size, half, tuple(mix64(*key, round_number) & _WORD for round_number in range(ROUNDS)))

    def _shuffle(self, value: Any) -> Any:
        mask = (1 << self.half) - 1
        left, right = value >> self.half, value & mask
        for key in self.keys:
            # Every product stays below 2**63, so that int64 tensors compute exactly what integers do.
            word = (right + key) & _WORD
            word = ((word ^ (word >> 16)) * 0x45D9F3B) & _WORD
            word = ((word ^ (word >> 15)) * 0x2C1B3C6D) & _WORD
            left, right = right, left ^ ((word ^ (word >> 13)) & mask)
        return (left << self.half) | right

    def __call__(self, position: int) -> int:
        value = self._shuffle(position)
        while value >= self.size:
            value = self._shuffle(value)
        return int(value)

    def map_tensor(self, positions: Any) -> Any:
        """Map an int64 tensor of positions."""
        values = self._shuffle(positions)
        while bool((outside := values >= self.size).any()):
            values[outside] = self._shuffle(values[outside])
        return values


@dataclass(frozen=True, slots=True)
class Span:
    """The positions one step consumes, counted within its epoch."""

    epoch: int
    lo: int
    hi: int

    @property
    def records(self) -> int:
        return self.hi - self.lo


@dataclass(frozen=True, slots=True)
class StepSampler:
    """The order in which a job reads its records, as torch's samplers define it for one process.

    A step consumes `micro_batches` x `micro_size` records. The last step of an epoch has only the remaining records;
    they are distributed evenly over the micro-batches, never padded and never dropped.

    Attributes:
        records: the number of records in the dataset.
        micro_size: the number of records in a micro-batch.
        micro_batches: the number of micro-batches in a step.
        epochs: how often the dataset is read.
        seed: the seed of the shuffling and of the random numbers of each micro-batch.
        shuffle: whether each epoch reads the records in a new random order.
    """

    records: int
    micro_size: int
    micro_batches: int = 1
    epochs: int = 1
    seed: int = 0
    shuffle: bool = True

    def __post_init__(self) -> None:
        for name in ("records", "micro_size", "micro_batches", "epochs"):
            if getattr(self, name) < 1:
                hint = "use a dataset that is not empty" if name == "records" else f"use {name} >= 1"
                raise ElasticError("BadOrder", f"{name} is {getattr(self, name)}, but must be at least 1", hint=hint)

    @property
    def step_size(self) -> int:
        return self.micro_size * self.micro_batches

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.records // self.step_size)

    @property
    def steps(self) -> int:
        return self.steps_per_epoch * self.epochs

    def span(self, step: int) -> Span:
        """Return the positions of a step. Steps count from 1: a model at step k has consumed the steps 1..k."""
        if not 1 <= step <= self.steps:
            raise IndexError(f"step {step} is outside 1..{self.steps}")
        epoch, within = divmod(step - 1, self.steps_per_epoch)
        lo = within * self.step_size
        return Span(epoch, lo, min(lo + self.step_size, self.records))

    def records_until(self, step: int) -> int:
        """Return how many records a model at this step has consumed, those of all epochs."""
        if step < 1:
            return 0
        span = self.span(min(step, self.steps))
        return span.epoch * self.records + span.hi

    def micro_span(self, step: int, micro: int) -> Span:
        """Return the positions of a micro-batch."""
        span = self.span(step)
        lo = span.lo + span.records * micro // self.micro_batches
        return Span(span.epoch, lo, span.lo + span.records * (micro + 1) // self.micro_batches)

    def weight(self, step: int, micro: int) -> float:
        """Return the weight of a micro-batch's mean gradient in the mean gradient of its step."""
        return self.micro_span(step, micro).records / self.span(step).records

    def permutation(self, epoch: int) -> Permutation:
        """Return the order of the records in an epoch."""
        return Permutation.from_key(self.records, self.seed, epoch)

    def record_ids(self, step: int, micro: int) -> list[int]:
        """Return the records of a micro-batch."""
        span = self.micro_span(step, micro)
        if not self.shuffle:
            return list(range(span.lo, span.hi))
        permute = self.permutation(span.epoch)
        return [permute(position) for position in range(span.lo, span.hi)]

    def rng_seed(self, step: int, micro: int) -> int:
        """Return the seed for the computation of one micro-batch, whichever worker computes it."""
        return mix64(self.seed, step, micro, 0x726E67) >> 1

    def body_seed(self, step: int) -> int:
        """Return the seed for what a program draws after a step, in the body of its loop or after it."""
        return mix64(self.seed, step, 0x626F6479) >> 1

    def update_seed(self, step: int) -> int:
        """Return the seed for what an optimizer draws, which must be the same on every worker."""
        return mix64(self.seed, step, 0x757064617465) >> 1

    def load_seed(self, step: int, micro: int) -> int:
        """Return the seed for the loading of one micro-batch, whichever process loads it."""
        return mix64(self.seed, step, micro, 0x6C6F6164) >> 1

    def micro_batch_keys(self) -> Iterator[tuple[int, int]]:
        """Iterate over the step and the number of every micro-batch of the job."""
        for step in range(1, self.steps + 1):
            for micro in range(self.micro_batches):
                yield step, micro


def split_micro_batches(micro_batches: int, world: int, speeds: Sequence[float] | None = None) -> tuple[range, ...]:
    """Split the micro-batches of a step into one contiguous block for each rank.

    Only this depends on the membership. Every rank gets at least one micro-batch, so that its speed can be measured.

    Args:
        micro_batches: the number of micro-batches in a step.
        world: the number of ranks.
        speeds: the measured speed of each rank; None for equal blocks.
    """
    if not 1 <= world <= micro_batches:
        raise ElasticError(
            "WorldTooLarge",
            f"{micro_batches} micro-batches are too few for {world} workers",
            hint=f"use at most {micro_batches} workers, or raise micro_batches (this changes the training)",
        )
    if speeds is None or len(set(speeds)) <= 1:
        edges = [micro_batches * rank // world for rank in range(world + 1)]
        return tuple(range(edges[rank], edges[rank + 1]) for rank in range(world))
    counts = _proportional_counts(micro_batches, speeds)
    blocks, start = [], 0
    for count in counts:
        blocks.append(range(start, start + count))
        start += count
    return tuple(blocks)


def _proportional_counts(total: int, speeds: Sequence[float]) -> list[int]:
    """Assign one micro-batch at a time to the rank that would finish first; this minimizes the slowest rank's time."""
    counts = [1] * len(speeds)
    for _ in range(total - len(speeds)):
        rank = min(range(len(speeds)), key=lambda r: ((counts[r] + 1) / speeds[r], r))
        counts[rank] += 1
    return counts
