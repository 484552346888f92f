"""Tensors in a file of the safetensors format: a length, a JSON header with types, shapes and offsets, and the data.

The format has no place for code. A reader checks every size against the size of the file before it allocates anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from torchyard.elastic.checkpoint.files import foreign, open_regular
from torchyard.elastic.world.state import raw_bytes
from torchyard.elastic.world.state_header import check_memory

LENGTH_BYTES = 8
LARGEST_HEADER = 100 << 20
"""As in the reference implementation."""
METADATA = "__metadata__"
_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_NAMES = {safetensors: name for name, safetensors in _DTYPES.items()}
_WRITE_PIECE = 64 << 20


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a file holds a tensor: [start, end) counts from the begin of the data."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def write(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors to a new file. A dtype that the format does not have is stored as bytes."""
    header: dict[str, Any] = {METADATA: {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        dtype, shape = _describe(tensor)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % LENGTH_BYTES)
    with path.open("xb", buffering=0) as file:
        _write(file.fileno(), len(encoded).to_bytes(LENGTH_BYTES, "little") + encoded)
        for tensor in tensors.values():
            _write(file.fileno(), raw_bytes(tensor))


def _describe(tensor: torch.Tensor) -> tuple[str, tuple[int, ...]]:
    """Return the type and the shape of a tensor in the file."""
    dtype = _DTYPES.get(str(tensor.dtype).removeprefix("torch."))
    return (dtype, tuple(tensor.shape)) if dtype else ("U8", (tensor.numel() * tensor.element_size(),))


def _write(handle: int, data: Any) -> None:
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(handle, view[:_WRITE_PIECE]) :]


def read_into(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Fill tensors with the content of a file, which must contain exactly these."""
    handle = open_regular(path)
    try:
        entries, begin = _read_header(handle, path)
        if set(entries) != set(tensors):
            raise foreign(path, "it does not contain the tensors of its state")
        for name, tensor in tensors.items():
            entry = entries[name]
            if (entry.dtype, entry.shape) != _describe(tensor):
                raise foreign(path, f"the type or the shape of {name[:100]!r} differs from its state")
            _read(handle, raw_bytes(tensor), begin + entry.start, path)
    finally:
        os.close(handle)


def _read(handle: int, into: Any, offset: int, path: Path) -> None:
    view = memoryview(into).cast("B")
    while view:
        count = os.preadv(handle, [view[:_WRITE_PIECE]], offset)
        if not count:
            raise foreign(path, "it was truncated while it was read")
        view, offset = view[count:], offset + count


def _read_header(handle: int, path: Path) -> tuple[dict[str, TensorEntry], int]:
    """Return the entries of a file, and where its data begins."""
    size = os.fstat(handle).st_size
    length = int.from_bytes(os.pread(handle, LENGTH_BYTES, 0), "little")
    begin = LENGTH_BYTES + length
    if size < LENGTH_BYTES or length > LARGEST_HEADER or begin > size:
        raise foreign(path, f"its header of {length} bytes does not fit into {size} bytes")
    try:
        header = json.loads(os.pread(handle, length, LENGTH_BYTES))
        entries = {name: _entry(value) for name, value in _items(header)}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise foreign(path, f"its header is not valid ({type(error).__name__})") from error
    check_memory(size, source=str(path))
    end = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.end)):
        if entry.start != end:
            raise foreign(path, "its tensors overlap or leave a gap")
        end = entry.end
    if end != size - begin:
        raise foreign(path, f"its tensors have {end} bytes, but the file has {size - begin}")
    return entries, begin


def _items(header: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(header, dict):
        raise TypeError("the header is not an object")
    return ((name, value) for name, value in header.items() if name != METADATA)


def _entry(value: Any) -> TensorEntry:
    dtype, shape, (start, end) = value["dtype"], value["shape"], value["data_offsets"]
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in (*shape, start, end)):
        raise ValueError("sizes and offsets must be natural numbers")
    itemsize = getattr(torch, _NAMES[dtype]).itemsize
    if end - start != prod(shape) * itemsize:
        raise ValueError("the size of a tensor differs from its offsets")
    return TensorEntry(dtype, tuple(shape), start, end)
