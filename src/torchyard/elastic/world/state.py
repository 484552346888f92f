"""Everything that makes a worker interchangeable: model, optimiser and whatever else has a state_dict.

The state is split into a skeleton (plain data, with numbers in place of tensors) and the list of its tensors: the same
form travels to a peer, lies in shared memory, and is hashed. Decides nothing about when.
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
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state taken apart. The tensors may be views of the live ones: copy before the next step changes them."""

    skeleton: Any
    tensors: list[torch.Tensor]

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)

    def header(self) -> bytes:
        """Skeleton and tensor shapes as bytes that hold no code."""
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
        """Room for the tensors that a header announces."""
        told = torch.load(io.BytesIO(header), weights_only=True)
        made = [torch.empty(shape, dtype=getattr(torch, kind), device=device) for kind, shape in told["tensors"]]
        return cls(told["skeleton"], made)

    @classmethod
    def announced(cls, header: bytes) -> Snapshot:
        """Kinds and shapes only: tensors without memory."""
        return cls.empty_like(header, device="meta")


class TrainingState:
    """The live objects of a training program, by name."""

    def __init__(self, parts: Mapping[str, Stateful]) -> None:
        self._parts = dict(parts)
        for name, part in self._parts.items():
            if not hasattr(part, "state_dict") or not hasattr(part, "load_state_dict"):
                raise ElasticError(
                    "NotStateful",
                    f"{name} has no state_dict and load_state_dict",
                    hint="pass only objects whose state must follow the model: optimisers, schedulers, scalers",
                )

    def capture(self) -> Snapshot:
        tensors: list[torch.Tensor] = []
        whole = {name: part.state_dict() for name, part in self._parts.items()}
        return Snapshot(_take_apart(whole, tensors), tensors)

    def capture_until_update(self) -> Snapshot:
        """As `capture`, good until the next update: what a forward pass changes, a module's buffers, is copied now."""
        modules = [part for part in self._parts.values() if isinstance(part, torch.nn.Module)]
        moving = {buffer.data_ptr() for module in modules for buffer in module.buffers()}
        held = self.capture()
        return Snapshot(held.skeleton, [t.clone() if t.data_ptr() in moving else t for t in held.tensors])

    def restore(self, snapshot: Snapshot) -> None:
        whole = _put_together(snapshot.skeleton, snapshot.tensors)
        if set(whole) != set(self._parts):
            raise ElasticError(
                "OtherState",
                f"this state holds {sorted(whole)}, the program has {sorted(self._parts)}",
                hint="resume with the program that made it",
            )
        for name, part in self._parts.items():
            try:
                part.load_state_dict(whole[name])
            except (RuntimeError, ValueError, KeyError) as error:
                raise ElasticError(
                    "OtherState", f"the {name} does not fit: {error}", hint="resume with the program that made it"
                ) from error

    @property
    def gpu(self) -> torch.device | None:
        """The device of a state that lies on one."""
        return next((tensor.device for tensor in self.capture().tensors if tensor.is_cuda), None)

    def digest(self) -> str:
        return self.capture().digest()


def _take_apart(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return f"{_MARK}{len(tensors) - 1}"
    if isinstance(value, Mapping):
        return {key: _take_apart(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_take_apart(item, tensors) for item in value]
    if isinstance(value, set | frozenset):
        return [_take_apart(item, tensors) for item in sorted(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, complex | bytes):
        return value
    if hasattr(value, "item"):
        return value.item()
    raise ElasticError(
        "UnknownState",
        f"a state_dict holds a {type(value).__name__}, which cannot be handed to another worker",
        hint="keep plain numbers, strings, lists, dicts and tensors in state_dict",
    )


def _put_together(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, str) and value.startswith(_MARK):
        return tensors[int(value.removeprefix(_MARK))]
    if isinstance(value, dict):
        return {key: _put_together(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_put_together(item, tensors) for item in value]
    return value


def raw_bytes(tensor: torch.Tensor) -> Any:
    """The bytes of a tensor without a copy where it already lies in order in main memory."""
    held = tensor.detach().to("cpu").contiguous()
    size = held.numel() * held.element_size()
    if not size:
        return b""
    view = (ctypes.c_char * size).from_address(held.data_ptr())
    # The view must keep its tensor alive: it may be the only reference to a fresh copy.
    view._tensor = held  # type: ignore[attr-defined]  # ctypes arrays accept attributes
    return view
