"""What of a Python object can be compared by its value: numbers and strings, arrays, generators of random numbers."""

from __future__ import annotations

import itertools
import random
import sys
import zlib
from typing import Any

import torch

PLAIN = (bool, int, float, complex, str, bytes, type(None))
MOST_ELEMENTS = 16384
"""The values of larger tensors are not compared, and of larger arrays only so many."""


def tensor_value(tensor: torch.Tensor, *, values: bool) -> Any:
    """Return what changes when a tensor is changed.

    Args:
        tensor: the tensor.
        values: return its values; otherwise what torch counts when one is changed, which is fast.
    """
    if torch.nn.parameter.is_lazy(tensor) or tensor.is_inference():
        return None
    if not values:
        return id(tensor), tensor._version
    small = tensor.numel() <= MOST_ELEMENTS and tensor.layout is torch.strided
    return (tuple(tensor.shape), tensor.detach().cpu().tolist() if small else None)


def generator_state(value: Any) -> tuple[str, Any] | None:
    """Return how the state of a generator or a counter is read and what it is; None for other objects.

    The global generators have none: they are seeded for every micro-batch.
    """
    if isinstance(value, torch.Generator):
        return "get_state()", bytes(value.get_state().tolist())
    if isinstance(value, random.Random):
        return None if value is getattr(random, "_inst", None) else ("getstate()", repr(value.getstate()))
    if isinstance(value, itertools.count):
        return "__repr__()", repr(value)
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "random"):
        return None
    if isinstance(value, numpy.random.Generator):
        return "bit_generator.state", repr(value.bit_generator.state)
    if isinstance(value, numpy.random.RandomState) and value is not numpy.random.mtrand._rand:
        return "get_state()", repr(value.get_state(legacy=False))
    return None


def array_value(value: Any) -> tuple[Any, ...] | None:
    """Return the shape and a checksum of a NumPy array; None for other objects. Of a large array it reads a part."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray) or value.dtype.hasobject:
        return None
    part = value if value.size <= MOST_ELEMENTS else value.flat[:: -(-value.size // MOST_ELEMENTS)]
    return (value.shape, zlib.crc32(numpy.ascontiguousarray(part).tobytes()))
