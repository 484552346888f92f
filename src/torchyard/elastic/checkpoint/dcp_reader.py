"""Reads the checkpoints that Torchyard 0.1 wrote with DCP. Nothing in them is executed.

DCP's `.metadata` is a pickle. It is read with an unpickler that knows only the names in a metadata file of ours, and
that replaces each of them by an inert record: it imports nothing. The tensors are read with `weights_only=True`.
"""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from torchyard.elastic.checkpoint.files import foreign, open_regular, read_regular
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.world.state import Snapshot
from torchyard.elastic.world.state_header import (
    DTYPES,
    LARGEST_HEADER,
    TensorRef,
    check_memory,
    encode_header,
    references,
    tensor_paths,
    tensor_spec,
)

SKELETON = "skeleton.pt"
METADATA = ".metadata"
_TENSOR_MARK = "\0tensor:"
_DCP = "torch.distributed.checkpoint"
_RECORDS = {
    (f"{_DCP}.metadata", "Metadata"),
    (f"{_DCP}.metadata", "TensorStorageMetadata"),
    (f"{_DCP}.metadata", "TensorProperties"),
    (f"{_DCP}.metadata", "ChunkStorageMetadata"),
    (f"{_DCP}.metadata", "MetadataIndex"),
    (f"{_DCP}.metadata", "StorageMeta"),
    (f"{_DCP}.filesystem", "_StorageInfo"),
}
_IGNORED_CALLS = {
    (f"{_DCP}.metadata", "_MEM_FORMAT_ENCODING"),
    ("torch.serialization", "_get_layout"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a checkpoint holds a tensor: a file of its directory, and a range of bytes."""

    file: str
    offset: int
    length: int


class _MetadataUnpickler(pickle.Unpickler):
    """Builds records without any code of their own: every global of the pickle is looked up here, none is imported."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))

        class PickledRecord:
            """The fields of one object of the pickle."""

            fields: Mapping[str, Any]

            def __setstate__(self, state: Any) -> None:
                self.fields = state if isinstance(state, dict) else {}

        def ignore(*arguments: Any) -> None:
            """Stand for a call whose result is not needed."""

        self._record: type[Any] = PickledRecord
        self._ignore: Callable[..., None] = ignore

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _RECORDS:
            return self._record
        if (module, name) in _IGNORED_CALLS:
            return self._ignore
        if (module, name) == ("torch", "Size"):
            return tuple
        if module == "torch" and name in DTYPES:
            return name
        raise pickle.UnpicklingError(f"it refers to {module}.{name}, which no checkpoint of Torchyard contains")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to objects outside the file")


def load(folder: Path) -> Snapshot:
    """Return the state in a checkpoint of format 1."""
    total = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(folder))
    skeleton, tensors = _read_skeleton(folder / SKELETON)
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors) > total:
        raise foreign(folder / SKELETON, "it describes tensors that are larger than the checkpoint")
    snapshot = Snapshot.empty_like(encode_header(skeleton, tensors), source=str(folder / SKELETON))
    locations = _read_locations(folder / METADATA)
    for name, tensor in zip(_names(skeleton, len(tensors)), snapshot.tensors, strict=True):
        if name not in locations:
            raise foreign(folder / METADATA, f"it does not contain the tensor {name[:100]!r}")
        stored = _read_tensor(folder, locations[name])
        if stored.shape != tensor.shape or stored.dtype != tensor.dtype:
            raise foreign(folder / locations[name].file, f"the tensor {name[:100]!r} has another type or shape")
        tensor.copy_(stored)
    return snapshot


def _read_skeleton(path: Path) -> tuple[Any, list[torch.Tensor]]:
    content = _torch_load(read_regular(path, LARGEST_HEADER), path)
    try:
        specs = [tensor_spec(dtype, list(shape)) for dtype, shape in content["tensors"]]
        skeleton = _mark_references(content["skeleton"])
        if sorted(ref.index for ref in references(skeleton)) != list(range(len(specs))):
            raise ValueError("it does not use each of its tensors exactly once")
        tensors = [torch.empty(spec.shape, dtype=spec.dtype, device="meta") for spec in specs]
    except (ValueError, KeyError, TypeError, RuntimeError, RecursionError) as error:
        raise foreign(path, f"its content is not a state ({type(error).__name__}: {error})") from error
    return skeleton, tensors


def _mark_references(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_TENSOR_MARK):
        return TensorRef(int(value.removeprefix(_TENSOR_MARK)))
    if isinstance(value, dict):
        return {key: _mark_references(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mark_references(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str | complex | bytes):
        return value
    raise TypeError(f"a state cannot contain a {type(value).__name__}")


def _names(skeleton: Any, count: int) -> list[str]:
    """Return the name of every tensor in format 1: the keys that lead to it, joined with dots."""
    names = tensor_paths(skeleton)
    return [names[index] for index in range(count)]


def _read_locations(path: Path) -> dict[str, StoredTensor]:
    """Return where each tensor is, from DCP's metadata."""
    try:
        metadata = _MetadataUnpickler(read_regular(path, LARGEST_HEADER)).load()
        storage = metadata.fields["storage_data"]
        locations = {index.fields["fqn"]: _location(info.fields) for index, info in storage.items()}
    except ElasticError:
        raise
    except Exception as error:  # an arbitrary pickle can make the unpickler raise anything
        raise foreign(path, f"{error}" if isinstance(error, pickle.UnpicklingError) else repr(error)[:200]) from error
    if len(locations) != len(storage) or not all(isinstance(name, str) for name in locations):
        raise foreign(path, "a tensor has several parts")
    return locations


def _location(fields: Mapping[str, Any]) -> StoredTensor:
    file, offset, length = fields["relative_path"], fields["offset"], fields["length"]
    if type(file) is not str or type(offset) is not int or type(length) is not int or min(offset, length) < 0:
        raise ValueError("the place of a tensor is not valid")
    if file in (".", "..") or "/" in file or "\0" in file:
        raise ValueError(f"{file!r} is not a file of the checkpoint")
    if fields.get("transform_descriptors"):
        raise ValueError("a tensor is compressed")
    return StoredTensor(file, offset, length)


def _read_tensor(folder: Path, location: StoredTensor) -> torch.Tensor:
    path = folder / location.file
    handle = open_regular(path)
    try:
        if location.offset + location.length > os.fstat(handle).st_size:
            raise foreign(path, "it is truncated")
        check_memory(location.length, source=str(path))
        with os.fdopen(os.dup(handle), "rb") as file:
            file.seek(location.offset)
            data = file.read(location.length)
    finally:
        os.close(handle)
    tensor = _torch_load(data, path)
    if not isinstance(tensor, torch.Tensor):
        raise foreign(path, "it does not contain a tensor where one is expected")
    return tensor


def _torch_load(data: bytes, path: Path) -> Any:
    """Load what `torch.save` wrote, as plain data and tensors only; it must not be larger in memory than on disk."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("an archive of torch.save is never compressed")
            if sum(entry.file_size for entry in archive.infolist()) > len(data):
                raise ValueError("the archive is larger than its file")
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many types for data that torch.save has not written
        raise foreign(
            path, f"it cannot be read as plain data and tensors ({str(error).splitlines()[0][:200]})"
        ) from error
