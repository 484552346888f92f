"""Which records make up which step: a pure function of the job's settings, never of its membership.

Because nothing here depends on who is alive, any worker, and a coordinator that has just been restarted, can name the
records of any step. That is what makes prefetching safe and a replay identical. Standard library only; the same
arithmetic runs on Python integers and on int64 tensors.
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
    """A well-spread 64-bit number from any integers (the finaliser of splitmix64, chained)."""
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = (state + (part & _WIDE) * 0xBF58476D1CE4E5B9 + 0x9E3779B97F4A7C15) & _WIDE
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _WIDE
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _WIDE
        state ^= state >> 31
    return state


@dataclass(frozen=True, slots=True)
class Permutation:
    """A keyed bijection of range(size) in constant memory: a Feistel network walked until it lands inside the range."""

    size: int
    half: int
    keys: tuple[int, ...]

    @classmethod
    def keyed(cls, size: int, *key: int) -> Permutation:
        half = max(1, ((size - 1).bit_length() + 1) // 2)
        return cls(size, half, tuple(mix64(*key, turn) & _WORD for turn in range(ROUNDS)))

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

    def many(self, positions: Any) -> Any:
        """The same for an int64 tensor of positions."""
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
    """The data order of a job: `micro_batches` x `micro_size` records make a step.

    The last step of an epoch is as short as the records left; it is shared out evenly, never padded and never dropped.
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
                hint = "an empty dataset cannot be trained on" if name == "records" else f"give {name} of 1 or more"
                raise ElasticError("BadOrder", f"{name} is {getattr(self, name)}, it must be at least 1", hint=hint)

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
        """Steps are counted from 1: a model that has applied step k has seen the records of steps 1..k."""
        if not 1 <= step <= self.steps:
            raise IndexError(f"step {step} is outside 1..{self.steps}")
        epoch, within = divmod(step - 1, self.steps_per_epoch)
        lo = within * self.step_size
        return Span(epoch, lo, min(lo + self.step_size, self.records))

    def micro_span(self, step: int, micro: int) -> Span:
        span = self.span(step)
        lo = span.lo + span.records * micro // self.micro_batches
        return Span(span.epoch, lo, span.lo + span.records * (micro + 1) // self.micro_batches)

    def weight(self, step: int, micro: int) -> float:
        """The share of the step's mean gradient that a micro-batch's own mean contributes."""
        return self.micro_span(step, micro).records / self.span(step).records

    def permutation(self, epoch: int) -> Permutation:
        return Permutation.keyed(self.records, self.seed, epoch)

    def record_ids(self, step: int, micro: int) -> list[int]:
        span = self.micro_span(step, micro)
        if not self.shuffle:
            return list(range(span.lo, span.hi))
        permute = self.permutation(span.epoch)
        return [permute(position) for position in range(span.lo, span.hi)]

    def rng_key(self, step: int, micro: int) -> int:
        """Seeds dropout and augmentation of one micro-batch, whoever runs it."""
        return mix64(self.seed, step, micro, 0x726E67) >> 1

    def walk(self) -> Iterator[tuple[int, int]]:
        for step in range(1, self.steps + 1):
            for micro in range(self.micro_batches):
                yield step, micro


def shares(micro_batches: int, world: int, speeds: Sequence[float] | None = None) -> tuple[range, ...]:
    """Contiguous blocks of micro-batches, one for each rank: even, or in proportion to measured speed.

    Only this depends on the membership. Every rank gets at least one micro-batch, so that its speed stays measurable.
    """
    if not 1 <= world <= micro_batches:
        raise ElasticError(
            "WorldTooLarge",
            f"{world} workers cannot share {micro_batches} micro-batches",
            hint=f"use at most {micro_batches} workers, or raise micro_batches (this changes the training)",
        )
    if speeds is None or len(set(speeds)) <= 1:
        edges = [micro_batches * rank // world for rank in range(world + 1)]
        return tuple(range(edges[rank], edges[rank + 1]) for rank in range(world))
    counts = _proportional(micro_batches, speeds)
    blocks, start = [], 0
    for count in counts:
        blocks.append(range(start, start + count))
        start += count
    return tuple(blocks)


def _proportional(total: int, speeds: Sequence[float]) -> list[int]:
    """Hand out one at a time to whoever would finish its block first: minimises the slowest rank's time."""
    counts = [1] * len(speeds)
    for _ in range(total - len(speeds)):
        rank = min(range(len(speeds)), key=lambda r: ((counts[r] + 1) / speeds[r], r))
        counts[rank] += 1
    return counts
