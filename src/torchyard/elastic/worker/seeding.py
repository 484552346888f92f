"""Seeds all generators of random numbers that a program may use, so that they depend on the records alone."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_NUMPY_SEED_BITS = 32


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators of torch (the CPU and the device in use), of `random`, and of NumPy if it is imported.

    `torch.manual_seed` records its caller for every device that is not initialized, which costs time at each call.
    """
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed((seed & ((1 << _NUMPY_SEED_BITS) - 1), seed >> _NUMPY_SEED_BITS))
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(seed)
    elif device.type != "cpu":
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)


@contextmanager
def generators_restored() -> Iterator[None]:
    """Give the generators of torch (on the CPU), of NumPy and of `random` their present states again at the end."""
    numpy = sys.modules.get("numpy")
    states = random.getstate(), torch.default_generator.get_state(), numpy and numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        torch.default_generator.set_state(states[1])
        if numpy is not None:
            numpy.random.set_state(states[2])


def generators_digest() -> str:
    """Return a hash of the states of the generators of torch (on the CPU), of NumPy and of `random`."""
    hasher = hashlib.sha256(repr(random.getstate()).encode())
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        hasher.update(repr(numpy.random.get_state(legacy=False)).encode())
    hasher.update(bytes(torch.default_generator.get_state().tolist()))
    return hasher.hexdigest()
