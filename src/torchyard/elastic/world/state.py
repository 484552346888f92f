"""Everything that makes workers interchangeable: model, optimizer and every other object with a state_dict.

The state is split into a skeleton (plain data, with a number in place of each tensor) and the list of its tensors. In
this form it is sent to a peer, staged in shared memory, and hashed.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.world.state_header import (
    MAX_INT_BITS,
    ArrayRef,
    TensorRef,
    bad_state,
    check_memory,
    decode_header,
    encode_header,
)

_Path = tuple[Any, ...]
"""The keys that lead to a value: a key after the path of its parent. It is joined only for an error message."""
_EXACT_TYPES = frozenset({int, float, str, bool, bytes, complex, type(None)})
_PLAIN_TYPES: tuple[type[Any], ...] = (int, float, str, complex, bytes)


class Stateful(Protocol):
    """An object whose state can be saved and restored, as torch's modules and optimizers."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state as skeleton and tensors. The tensors may share memory with the live ones, which the next step changes."""

    skeleton: Any
    tensors: list[torch.Tensor]

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)

    def header(self) -> bytes:
        """Return the skeleton and the tensors' types and shapes."""
        return encode_header(self.skeleton, self.tensors)

    def digest(self) -> str:
        hasher = hashlib.sha256(repr(self.skeleton).encode())
        for tensor in self.tensors:
            hasher.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            hasher.update(raw_bytes(tensor))
        return hasher.hexdigest()

    @classmethod
    def empty_like(
        cls, header: bytes, *, device: str = "cpu", source: str = "the header", nbytes: int | None = None
    ) -> Snapshot:
        """Allocate the tensors that a header describes.

        Args:
            header: the result of `header`, perhaps from another process or machine.
            device: where to allocate the tensors.
            source: where the header comes from, for error messages.
            nbytes: how many bytes of tensors there are; None if the caller checks it.
        """
        state = decode_header(header, source=source)
        if nbytes is not None and nbytes != state.nbytes:
            raise bad_state(source, f"its tensors have {state.nbytes} bytes, but there are {nbytes}")
        if device != "meta":
            check_memory(state.nbytes, source=source)
        try:
            tensors = [torch.empty(spec.shape, dtype=spec.dtype, device=device) for spec in state.tensors]
        except (RuntimeError, TypeError) as error:
            raise bad_state(source, str(error).splitlines()[0]) from error
        return cls(state.skeleton, tensors)

    @classmethod
    def without_data(cls, header: bytes, *, source: str = "the header") -> Snapshot:
        """Return the snapshot that a header describes, with tensors that have no memory."""
        return cls.empty_like(header, device="meta", source=source)


class TrainingState:
    """The live objects of a training program whose state workers exchange, by name."""

    def __init__(self, parts: Mapping[str, Stateful]) -> None:
        self._parts = dict(parts)
        for name, part in self._parts.items():
            if not hasattr(part, "state_dict") or not hasattr(part, "load_state_dict"):
                raise ElasticError(
                    "NotStateful",
                    f"{name} does not have both state_dict and load_state_dict",
                    hint="pass only objects whose state must follow the model: optimizers, schedulers, scalers",
                )

    def capture(self, *, compared: bool = False) -> Snapshot:
        """Return the present state, without copying tensors.

        Args:
            compared: leave out parts with the attribute `not_compared`, such as logs with times in them.
        """
        tensors: list[torch.Tensor] = []
        state_dicts = {
            name: part.state_dict()
            for name, part in self._parts.items()
            if not (compared and getattr(part, "not_compared", False))
        }
        return Snapshot(_extract_tensors(state_dicts, tensors, ()), tensors)

    def capture_until_update(self) -> Snapshot:
        """As `capture`, and valid until the next update: copies the modules' buffers, which a forward pass changes."""
        modules = [part for part in self._parts.values() if isinstance(part, torch.nn.Module)]
        buffers = {buffer.data_ptr() for module in modules for buffer in module.buffers()}
        snapshot = self.capture()
        return Snapshot(snapshot.skeleton, [t.clone() if t.data_ptr() in buffers else t for t in snapshot.tensors])

    def restore(self, snapshot: Snapshot) -> None:
        """Load a snapshot into the live objects."""
        state_dicts = _insert_tensors(snapshot.skeleton, snapshot.tensors)
        if not isinstance(state_dicts, dict):
            raise bad_state("the restored state", "it is not a dict of state_dicts")
        if set(state_dicts) != set(self._parts):
            raise ElasticError(
                "OtherState",
                f"the state contains {sorted(map(str, state_dicts))}, but the program has {sorted(self._parts)}",
                hint="resume with the program that saved it",
            )
        for name, part in self._parts.items():
            try:
                part.load_state_dict(state_dicts[name])
            except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                raise ElasticError(
                    "OtherState",
                    f"the state of the {name} does not fit: {error}",
                    hint="resume with the program that saved it",
                ) from error

    @property
    def gpu(self) -> torch.device | None:
        """The GPU that holds the state; None if the state is on the CPU."""
        return next((tensor.device for tensor in self.capture().tensors if tensor.is_cuda), None)

    def digest(self) -> str:
        return self.capture(compared=True).digest()


def _extract_tensors(value: Any, tensors: list[torch.Tensor], path: _Path) -> Any:
    """Return the skeleton of a value, and append its tensors to `tensors`.

    Args:
        value: a state_dict, or a part of one.
        tensors: receives the tensors.
        path: the keys that lead to the value, for error messages.
    """
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized or value.is_meta:
            raise _unknown(path, f"a tensor that is {'quantized' if value.is_quantized else _layout(value)}")
        tensors.append(value.detach())
        return TensorRef(len(tensors) - 1)
    if type(value) in _EXACT_TYPES:
        return _plain(value, path) if type(value) is int else value
    if (array := _array_as_tensor(value, path)) is not None:
        tensors.append(array)
        return ArrayRef(len(tensors) - 1)
    if type(value) is dict or isinstance(value, Mapping):
        return {_plain_key(key, path): _extract_tensors(item, tensors, (path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_extract_tensors(item, tensors, (path, index)) for index, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        return [_extract_tensors(item, tensors, path) for item in _sorted(value)]
    return _plain(value, path)


def _array_as_tensor(value: Any, path: _Path) -> torch.Tensor | None:
    """Return a NumPy array as a tensor that shares its memory if possible; None for anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray) or not value.shape:
        return None
    try:
        return torch.from_numpy(numpy.require(value, requirements=["C", "W"]))
    except TypeError as error:
        raise _unknown(path, f"a NumPy array of {value.dtype}") from error


def _layout(value: torch.Tensor) -> str:
    return "on the meta device" if value.is_meta else f"not dense ({str(value.layout).removeprefix('torch.')})"


def _text_of(path: _Path) -> str:
    """Return the keys that lead to a value, joined with dots."""
    keys = []
    while path:
        path, key = path
        keys.append(str(key))
    return ".".join(reversed(keys))


def _sorted(values: set[Any] | frozenset[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=repr)


def _plain(value: Any, path: _Path, *, is_key: bool = False) -> Any:
    """Return a value as one of the types that a header can hold: a subclass, such as an enum, becomes its base."""
    if hasattr(value, "item") and getattr(value, "shape", ()) == ():
        value = value.item()  # a number of NumPy
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        raise _unknown(path, f"an integer of {value.bit_length()} bits", is_key=is_key)
    for plain in _PLAIN_TYPES:
        if isinstance(value, plain):
            return str.__str__(value) if isinstance(value, str) else plain(value)
    raise _unknown(path, f"a {type(value).__module__}.{type(value).__qualname__}", is_key=is_key)


def _plain_key(key: Any, path: _Path) -> Any:
    if type(key) is str:
        return key
    if isinstance(key, tuple):
        return tuple(_plain_key(item, path) for item in key)
    return _plain(key, path, is_key=True)


def _unknown(path: _Path, kind: str, *, is_key: bool = False) -> ElasticError:
    place = f"{'a key of ' if is_key else ''}{_text_of(path) or 'the state'}"
    return ElasticError(
        "UnknownState",
        f"{place} is {kind}, which can neither be sent to another worker nor be saved",
        hint="use only numbers, strings, lists, dicts and dense tensors in a state_dict",
    )


def _insert_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, ArrayRef):
        return tensors[value.index].cpu().numpy()
    if isinstance(value, TensorRef):
        return tensors[value.index]
    if isinstance(value, dict):
        return {key: _insert_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_insert_tensors(item, tensors) for item in value]
    return value


def raw_bytes(tensor: torch.Tensor) -> Any:
    """Return the bytes of a tensor; a contiguous CPU tensor is not copied."""
    cpu_tensor = tensor.detach().to("cpu").contiguous()
    size = cpu_tensor.numel() * cpu_tensor.element_size()
    if not size:
        return b""
    view = (ctypes.c_char * size).from_address(cpu_tensor.data_ptr())
    # The view must keep its tensor alive: it may be the only reference to a new copy.
    view._tensor = cpu_tensor  # type: ignore[attr-defined]  # ctypes arrays accept attributes
    return view
