"""Everything that makes workers interchangeable: model, optimizer and every other object with a state_dict.

The state is split into a skeleton (plain data, with a number in place of each tensor) and the list of its tensors. In
this form it is sent to a peer, staged in shared memory, and hashed.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from torchyard.elastic.errors import ElasticError

_MARK = "\0tensor:"


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
        """Return the skeleton and the tensors' types and shapes as bytes that contain no code."""
        kinds = [(str(tensor.dtype).removeprefix("torch."), list(tensor.shape)) for tensor in self.tensors]
        buffer = io.BytesIO()
        torch.save({"skeleton": self.skeleton, "tensors": kinds}, buffer)
        return buffer.getvalue()

    def digest(self) -> str:
        hasher = hashlib.sha256(repr(self.skeleton).encode())
        for tensor in self.tensors:
            hasher.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            hasher.update(raw_bytes(tensor))
        return hasher.hexdigest()

    @classmethod
    def empty_like(cls, header: bytes, *, device: str = "cpu") -> Snapshot:
        """Allocate the tensors that a header describes."""
        content = torch.load(io.BytesIO(header), weights_only=True)
        tensors = [torch.empty(shape, dtype=getattr(torch, kind), device=device) for kind, shape in content["tensors"]]
        return cls(content["skeleton"], tensors)

    @classmethod
    def without_data(cls, header: bytes) -> Snapshot:
        """Return the snapshot that a header describes, with tensors that have no memory."""
        return cls.empty_like(header, device="meta")


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

    def capture(self) -> Snapshot:
        """Return the present state, without copying tensors."""
        tensors: list[torch.Tensor] = []
        state_dicts = {name: part.state_dict() for name, part in self._parts.items()}
        return Snapshot(_extract_tensors(state_dicts, tensors), tensors)

    def capture_until_update(self) -> Snapshot:
        """As `capture`, and valid until the next update: copies the modules' buffers, which a forward pass changes."""
        modules = [part for part in self._parts.values() if isinstance(part, torch.nn.Module)]
        buffers = {buffer.data_ptr() for module in modules for buffer in module.buffers()}
        snapshot = self.capture()
        return Snapshot(snapshot.skeleton, [t.clone() if t.data_ptr() in buffers else t for t in snapshot.tensors])

    def restore(self, snapshot: Snapshot) -> None:
        """Load a snapshot into the live objects."""
        state_dicts = _insert_tensors(snapshot.skeleton, snapshot.tensors)
        if set(state_dicts) != set(self._parts):
            raise ElasticError(
                "OtherState",
                f"the state contains {sorted(state_dicts)}, but the program has {sorted(self._parts)}",
                hint="resume with the program that saved it",
            )
        for name, part in self._parts.items():
            try:
                part.load_state_dict(state_dicts[name])
            except (RuntimeError, ValueError, KeyError) as error:
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
        return self.capture().digest()


def _extract_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return f"{_MARK}{len(tensors) - 1}"
    if isinstance(value, Mapping):
        return {key: _extract_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_extract_tensors(item, tensors) for item in value]
    if isinstance(value, set | frozenset):
        return [_extract_tensors(item, tensors) for item in sorted(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, complex | bytes):
        return value
    if hasattr(value, "item"):
        return value.item()
    raise ElasticError(
        "UnknownState",
        f"a state_dict contains a {type(value).__name__}, which cannot be sent to another worker",
        hint="use only numbers, strings, lists, dicts and tensors in a state_dict",
    )


def _insert_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, str) and value.startswith(_MARK):
        return tensors[int(value.removeprefix(_MARK))]
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
