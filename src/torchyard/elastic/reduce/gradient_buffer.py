"""All gradients of a model as one flat vector, with a tail for everything else that the workers agree on in a step.

The tail carries whether the world is to end, the loss, and the running statistics of normalization layers. They travel
with the gradients, so the agreement needs no message of its own.
"""

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _NormBase

from torchyard.elastic.errors import ElasticError

RENDEZVOUS, LOSS, FIXED_TAIL = 0, 1, 2


class GradientBuffer:
    """One vector and its views: `grads` in the shapes of the parameters, and the `tail` after them."""

    def __init__(self, layout: GradientLayout) -> None:
        self.vector = torch.zeros(layout.capacity, dtype=layout.dtype, device=layout.device)
        self.used = self.vector[: layout.size]
        self.grads = [
            self.vector[start : start + parameter.numel()].view_as(parameter)
            for parameter, start in zip(layout.parameters, layout.starts, strict=True)
        ]
        self.tail = self.vector[layout.gradient_size : layout.size]
        self.statistics = [
            self.tail[start : start + buffer.numel()].view_as(buffer)
            for buffer, start in zip(layout.statistics, layout.statistics_starts, strict=True)
        ]


class GradientLayout:
    """Where the gradient of each parameter is in the vector.

    Args:
        model: the model whose parameters to lay out.
        padding: how many elements to add, so that the vector divides into equal slices.
    """

    def __init__(self, model: torch.nn.Module, *, padding: int) -> None:
        # Backward computes the gradients of the last parameters first: in reverse order a prefix is ready early.
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad][::-1]
        if not self.parameters:
            raise ElasticError(
                "NothingToTrain",
                "the model has no parameter that requires a gradient",
                hint="set requires_grad on some parameters",
            )
        types = {(parameter.dtype, parameter.device) for parameter in self.parameters}
        if len(types) > 1:
            raise ElasticError(
                "MixedModel",
                f"the trainable parameters have several types or devices: {sorted(map(str, types))}",
                hint="use one dtype and one device for all trainable parameters; use autocast for mixed precision",
            )
        self.dtype, self.device = types.pop()
        self.statistics = _running_statistics(model)
        self.counters = _batch_counters(model)
        self.starts: list[int] = []
        offset = 0
        for parameter in self.parameters:
            self.starts.append(offset)
            offset += parameter.numel()
        self.gradient_size = offset
        self.statistics_starts: list[int] = []
        offset = FIXED_TAIL
        for buffer in self.statistics:
            self.statistics_starts.append(offset)
            offset += buffer.numel()
        self.size = self.gradient_size + offset
        self.capacity = self.size + padding


def clear_gradients(layout: GradientLayout) -> None:
    """Remove all gradients, because backward adds to the present ones."""
    for parameter in layout.parameters:
        parameter.grad = None


class RunningStatistics:
    """Makes running statistics a function of the step, not of the distribution of micro-batches.

    Every micro-batch starts from the statistics at the start of the step. The step ends with their weighted mean.
    """

    def __init__(self, layout: GradientLayout) -> None:
        self._layout = layout
        self._initial: list[torch.Tensor] = []
        self._initial_counts: list[torch.Tensor] = []

    def begin(self) -> None:
        """Remember the statistics at the start of a step."""
        self._initial = [buffer.clone() for buffer in self._layout.statistics]
        self._initial_counts = [counter.clone() for counter in self._layout.counters]

    def rewind(self) -> None:
        """Go back to the start of the step before a micro-batch."""
        for buffer, initial in zip(self._layout.statistics, self._initial, strict=True):
            buffer.copy_(initial)

    def restore(self) -> None:
        """Restore the statistics after a step that was not applied."""
        self.rewind()
        for counter, initial in zip(self._layout.counters, self._initial_counts, strict=True):
            counter.copy_(initial)

    def apply_mean(self, total: GradientBuffer) -> None:
        """End the step with the mean of all micro-batches."""
        for buffer, mean in zip(self._layout.statistics, total.statistics, strict=True):
            buffer.copy_(mean)
        for counter, initial in zip(self._layout.counters, self._initial_counts, strict=True):
            counter.copy_(initial + 1)


def _norm_layers(model: torch.nn.Module) -> list[_NormBase]:
    return [module for module in model.modules() if isinstance(module, _NormBase) and module.track_running_stats]


def _running_statistics(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return the buffers that are averaged: all others are constants."""
    return [b for module in _norm_layers(model) for b in (module.running_mean, module.running_var) if b is not None]


def _batch_counters(model: torch.nn.Module) -> list[torch.Tensor]:
    counters = [module.num_batches_tracked for module in _norm_layers(model)]
    return [counter for counter in counters if counter is not None]
