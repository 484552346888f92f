"""The header of a state: its plain values and the type and shape of its tensors, as JSON that cannot contain code.

A header comes from a peer, from shared memory or from a checkpoint of unknown origin. So `decode_header` accepts only
what `encode_header` writes, and it allocates nothing that a header merely claims.

A JSON object is always a tag with one key: `{"dict": [[key, value], …]}` keeps the order and the types of keys,
`{"tensor": 3}` stands for the fourth tensor.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from torchyard.elastic.errors import ElasticError

FORMAT = "torchyard-state/1"
LARGEST_HEADER = 256 << 20
MAX_DIMENSIONS = 64
MAX_INT_BITS = 8192
"""Python refuses to parse longer integers in JSON."""
DTYPES: dict[str, torch.dtype] = {
    name: value
    for name, value in sorted(vars(torch).items())
    if isinstance(value, torch.dtype) and str(value) == f"torch.{name}"
}


@dataclass(frozen=True, slots=True, repr=False)
class TensorRef:
    """Stands for a tensor in a skeleton."""

    index: int

    def __repr__(self) -> str:
        return repr(f"\0tensor:{self.index}")  # part of the digest of a state


@dataclass(frozen=True, slots=True, repr=False)
class ArrayRef(TensorRef):
    """Stands for a NumPy array in a skeleton: it is sent as a tensor and comes back as an array."""

    def __repr__(self) -> str:
        return repr(f"\0array:{self.index}")


def tensor_paths(skeleton: Any) -> dict[int, str]:
    """The keys that lead to each tensor of a skeleton, joined with dots, by its index."""
    paths: dict[int, str] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, TensorRef):
            paths[value.index] = path
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{path}.{key}" if path else str(key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{path}.{index}")

    walk(skeleton, "")
    return paths


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The type and the shape of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class StateHeader:
    """A decoded header.

    Attributes:
        skeleton: the plain values of the state, with a `TensorRef` in place of each tensor.
        tensors: what the references stand for.
    """

    skeleton: Any
    tensors: tuple[TensorSpec, ...]

    @property
    def nbytes(self) -> int:
        return sum(spec.nbytes for spec in self.tensors)


def encode_header(skeleton: Any, tensors: list[torch.Tensor]) -> bytes:
    """Return the header of a state."""
    specs = [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in tensors]
    content = {"format": FORMAT, "skeleton": _encode(skeleton), "tensors": specs}
    return json.dumps(content, separators=(",", ":")).encode()


def _encode(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case ArrayRef():
            return {"array": value.index}
        case TensorRef():
            return {"tensor": value.index}
        case list():
            return [_encode(item) for item in value]
        case dict():
            return {"dict": [[_encode(key), _encode(item)] for key, item in value.items()]}
        case tuple():
            return {"tuple": [_encode(item) for item in value]}
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
        case complex():
            return {"complex": [value.real, value.imag]}
    raise TypeError(f"a skeleton cannot contain a {type(value).__name__}")


def decode_header(data: bytes, *, source: str) -> StateHeader:
    """Return the content of a header.

    Args:
        data: the header.
        source: where it comes from, for the error message.
    """
    try:
        content = json.loads(data)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"the format is not {FORMAT}")
        tensors = tuple(tensor_spec(*spec) for spec in content["tensors"])
        skeleton = _decode(content["skeleton"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise bad_state(source, f"{type(error).__name__}: {error}") from error
    if sorted(ref.index for ref in references(skeleton)) != list(range(len(tensors))):
        raise bad_state(source, "it does not use each of its tensors exactly once")
    return StateHeader(skeleton, tensors)


def tensor_spec(dtype: Any, shape: Any) -> TensorSpec:
    """Return a checked type and shape."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{dtype!r} is not a dtype of tensors")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(_is_size(size) for size in shape):
        raise ValueError("the shape of a tensor is not valid")
    return TensorSpec(DTYPES[dtype], tuple(shape))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    match tag:
        case "tensor" if _is_size(content):
            return TensorRef(content)
        case "array" if _is_size(content):
            return ArrayRef(content)
        case "dict":
            return {_decode(key): _decode(item) for key, item in content}
        case "tuple":
            return tuple(_decode(item) for item in content)
        case "bytes":
            return base64.b64decode(content, validate=True)
        case "complex":
            return complex(*content)
    raise ValueError(f"{tag!r} is not a tag of a state")


def references(skeleton: Any) -> Iterator[TensorRef]:
    """Iterate over the tensor references of a skeleton."""
    if isinstance(skeleton, TensorRef):
        yield skeleton
    elif isinstance(skeleton, dict):
        for item in skeleton.values():
            yield from references(item)
    elif isinstance(skeleton, list):
        for item in skeleton:
            yield from references(item)


def bad_state(source: str, problem: str) -> ElasticError:
    """Return the error for a state that this runtime has not written."""
    return ElasticError("BadState", f"{source} is not a state: {problem}", hint="use a state that this runtime saved")


def check_memory(nbytes: int, *, source: str) -> None:
    """Raise if a state cannot fit into the memory of this machine, before any of it is allocated."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > total:
        raise ElasticError(
            "StateTooLarge",
            f"{source} describes tensors of {nbytes} bytes, but this machine has {total} bytes of memory",
            hint="check where the state comes from, or use a machine with more memory",
        )
