"""Random values in the manner of hypothesis' strategies, drawn from a `random.Random`.

Hypothesis looks for small failing examples and, asked only to generate, repeats small ones with slight changes. Where
a test wants many different requests and each is judged on its own, plain chance covers more ground: a seed names an
example, and the same seed draws it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any


@dataclass(frozen=True)
class Draw:
    """Something that can be drawn."""

    make: Callable[[Random], Any]

    def __call__(self, rng: Random) -> Any:
        return self.make(rng)

    def map(self, change: Callable[[Any], Any]) -> Draw:
        return Draw(lambda rng: change(self.make(rng)))


def just(value: Any) -> Draw:
    return Draw(lambda _: value)


def sampled_from(values: Sequence[Any]) -> Draw:
    return Draw(lambda rng: rng.choice(values))


def one_of(*draws: Draw) -> Draw:
    return Draw(lambda rng: rng.choice(draws)(rng))


def booleans() -> Draw:
    return Draw(lambda rng: rng.random() < 0.5)


def builds(make: Callable[..., Any], *draws: Draw) -> Draw:
    return Draw(lambda rng: make(*(one(rng) for one in draws)))


def lists(draw: Draw, *, min_size: int = 0, max_size: int = 3, unique_by: Callable[[Any], Any] | None = None) -> Draw:
    def make(rng: Random) -> list[Any]:
        drawn = [draw(rng) for _ in range(rng.randint(min_size, max_size))]
        return drawn if unique_by is None else list({unique_by(one): one for one in drawn}.values())

    return Draw(make)


def fixed_dictionaries(required: Mapping[str, Draw], *, optional: Mapping[str, Draw] | None = None) -> Draw:
    def make(rng: Random) -> dict[str, Any]:
        chosen = {name: one for name, one in (optional or {}).items() if rng.random() < 0.5}
        return {name: one(rng) for name, one in {**required, **chosen}.items()}

    return Draw(make)


def dictionaries(keys: Draw, values: Draw, *, max_size: int = 3) -> Draw:
    return Draw(lambda rng: {keys(rng): values(rng) for _ in range(rng.randint(0, max_size))})


def mostly(good: Draw, bad: Sequence[Any], *, rarity: int = 16) -> Draw:
    """Usually a good value, now and then one of the bad ones: most objects are wrong in no place or in one."""
    return Draw(lambda rng: rng.choice(bad) if rng.randrange(rarity) == 0 else good(rng))


def optional(required: Mapping[str, Draw] | None = None, /, **fields: Draw) -> Draw:
    """An object with the required fields and up to three of the others."""

    def make(rng: Random) -> dict[str, Any]:
        chosen = rng.sample(sorted(fields), rng.randint(0, min(3, len(fields))))
        return {name: one(rng) for name, one in {**(required or {}), **{key: fields[key] for key in chosen}}.items()}

    return Draw(make)


def junk(max_size: int = 40) -> Draw:
    """Random bytes."""
    return Draw(lambda rng: rng.randbytes(rng.randint(0, max_size)))


_LETTERS = "ab/~0-.$ \x00\x7f\u00e9\u202e\U0001f600"
_SCALARS: list[Callable[[Random], Any]] = [
    lambda rng: None,
    lambda rng: rng.random() < 0.5,
    lambda rng: rng.randint(-(2**70), 2**70),
    lambda rng: rng.randint(-2, 99),
    lambda rng: rng.uniform(-1e300, 1e300),
    lambda rng: "".join(rng.choices(_LETTERS, k=rng.randint(0, 8))),
    lambda rng: rng.choice(["1Gi", "a", "2026-01-01T00:00:00Z", "$patch", "", "IPv4", "TCP", "Always", "0", "http"]),
]


def json_values(keys: Sequence[str], *, depth: int = 3) -> Draw:
    """Any JSON, with object keys that mean something somewhere."""

    def make(rng: Random, left: int) -> Any:
        if left == 0 or rng.random() < 0.5:
            return rng.choice(_SCALARS)(rng)
        if rng.random() < 0.4:
            return [make(rng, left - 1) for _ in range(rng.randint(0, 3))]
        return {rng.choice(keys): make(rng, left - 1) for _ in range(rng.randint(0, 4))}

    return Draw(lambda rng: make(rng, depth))
