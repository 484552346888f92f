"""The buffers of a model that a forward pass changes: which they are, and how a step combines them.

The statistics of normalization layers are known. Others (spectral norm, codebooks, counters of a program's own modules)
are found by comparing all buffers before and after a forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch.nn.modules.batchnorm import _NormBase

from torchyard.elastic.errors import ElasticError


@dataclass(frozen=True, slots=True)
class MutableBuffers:
    """The buffers that a forward pass changes.

    Attributes:
        names: the name of every such buffer in the model.
        statistics: floating-point buffers: the step ends with their mean over all micro-batches.
        counters: other buffers: the step ends with the mean of their increments.
        transients: buffers that are not part of the state_dict: every micro-batch starts from their first value.
        places: the module, the name in it and the tensor of every such buffer.
    """

    names: frozenset[str] = frozenset()
    statistics: list[torch.Tensor] = field(default_factory=list)
    counters: list[torch.Tensor] = field(default_factory=list)
    transients: list[torch.Tensor] = field(default_factory=list)
    places: list[tuple[torch.nn.Module, str, torch.Tensor]] = field(default_factory=list)

    @classmethod
    def of_norm_layers(cls, model: torch.nn.Module) -> MutableBuffers:
        """Return the running statistics and batch counters of the normalization layers."""
        return cls.select(model, set(_norm_buffers(model)))

    @classmethod
    def select(cls, model: torch.nn.Module, names: set[str]) -> MutableBuffers:
        """Return the buffers of these names, in the order of the model."""
        persistent = set(model.state_dict(keep_vars=True))
        statistics, counters, transients = [], [], []
        for name, buffer in model.named_buffers():
            if name not in names:
                continue
            if name not in persistent:
                transients.append(buffer)
            elif buffer.is_floating_point() or buffer.is_complex():
                statistics.append(buffer)
            else:
                counters.append(buffer)
        places = [
            (module, key, buffer)
            for prefix, module in model.named_modules()
            for key, buffer in module.named_buffers(recurse=False)
            if (f"{prefix}.{key}" if prefix else key) in names
        ]
        return cls(frozenset(names), statistics, counters, transients, places)

    def take_assigned(self) -> None:
        """Copy the value of a buffer to which a forward pass has assigned a new tensor into its first tensor."""
        for module, key, buffer in self.places:
            assigned = module._buffers[key]
            if assigned is buffer:
                continue
            if assigned is None or assigned.shape != buffer.shape or assigned.dtype != buffer.dtype:
                raise _resized(f"{type(module).__name__}.{key}", buffer, assigned)
            with torch.no_grad():
                buffer.copy_(assigned)
            module._buffers[key] = buffer

    def check_precision(self, dtype: torch.dtype) -> None:
        """Raise if a statistic would lose precision on its way through a vector of gradients."""
        wide = {
            buffer.dtype for buffer in self.statistics if buffer.dtype.itemsize > dtype.itemsize or buffer.is_complex()
        }
        if wide:
            raise ElasticError(
                "MixedModel",
                f"the model has buffers of {sorted(map(str, wide))[0]} that training changes, but gradients of {dtype}",
                hint="use one dtype for the model; use autocast for mixed precision",
            )


class BufferWatch:
    """Remembers all buffers of a model, to find those that changed, and to restore them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._before = {name: buffer.detach().clone() for name, buffer in _materialized_buffers(model)}

    def changed(self) -> set[str]:
        """Return the names of the buffers that have changed since this watch was created."""
        return {
            name
            for name, buffer in _materialized_buffers(self._model)
            if name in self._before and not _same(buffer, self._before[name])
        }

    def restore(self) -> None:
        """Give all buffers their earlier values."""
        with torch.no_grad():
            for name, buffer in _materialized_buffers(self._model):
                earlier = self._before.get(name)
                if earlier is None or _same(buffer, earlier):
                    continue
                if buffer.shape != earlier.shape or buffer.dtype != earlier.dtype:
                    raise _resized(name, earlier, buffer)
                buffer.copy_(earlier)


def _resized(name: str, earlier: torch.Tensor, now: torch.Tensor | None) -> ElasticError:
    shapes = [f"{tensor.dtype} {tuple(tensor.shape)}" if tensor is not None else "None" for tensor in (earlier, now)]
    return ElasticError(
        "BufferResized",
        f"the forward pass changes the shape or the type of the buffer {name} from {shapes[0]} to {shapes[1]}: its "
        "values cannot be averaged over the micro-batches",
        hint="create the buffer in its final size, and fill it; count in another buffer how much of it is used",
    )


def mutable_buffers(model: torch.nn.Module, changed: set[str]) -> MutableBuffers:
    """Return the buffers of the normalization layers, and those that a forward pass has changed."""
    return MutableBuffers.select(model, set(_norm_buffers(model)) | changed)


def _same(buffer: torch.Tensor, earlier: torch.Tensor) -> bool:
    return buffer.shape == earlier.shape and bool(torch.eq(buffer, earlier).all() | _both_nan(buffer, earlier))


def _both_nan(buffer: torch.Tensor, earlier: torch.Tensor) -> torch.Tensor:
    if not buffer.is_floating_point():
        return torch.zeros((), dtype=torch.bool, device=buffer.device)
    return (torch.eq(buffer, earlier) | (buffer.isnan() & earlier.isnan())).all()


def _materialized_buffers(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, buffer in model.named_buffers():
        if not isinstance(buffer, torch.nn.parameter.UninitializedBuffer):
            yield name, buffer


def _norm_buffers(model: torch.nn.Module) -> Iterator[str]:
    for prefix, module in model.named_modules():
        if isinstance(module, _NormBase) and module.track_running_stats:
            for name, buffer in module.named_buffers(recurse=False):
                if buffer is not None:
                    yield f"{prefix}.{name}" if prefix else name
