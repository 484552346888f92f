"""All gradients of a model as one flat vector, with a tail for what else must be agreed on in the same exchange.

The tail carries the wish for a membership change, the loss, and the running statistics of normalisation layers: they
ride along with the gradients, so agreeing on them costs no message of its own.
"""

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _NormBase

from torchyard.elastic.errors import ElasticError

FLAG, LOSS, FIXED = 0, 1, 2


class GradientBuffer:
    """One vector and its views: `grads` in the shape of the parameters, `tail` behind them."""

    def __init__(self, layout: GradientLayout) -> None:
        self.vector = torch.zeros(layout.room, dtype=layout.dtype, device=layout.device)
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
    def __init__(self, model: torch.nn.Module, *, padding: int) -> None:
        # Backward makes the last parameters' gradients first: in reverse order a prefix is ready early.
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad][::-1]
        if not self.parameters:
            raise ElasticError("NothingToTrain", "the model has no parameter that requires a gradient")
        kinds = {(parameter.dtype, parameter.device) for parameter in self.parameters}
        if len(kinds) > 1:
            raise ElasticError(
                "MixedModel",
                f"trainable parameters of several kinds: {sorted(map(str, kinds))}",
                hint="keep all trainable parameters in one dtype on one device; use autocast for mixed precision",
            )
        self.dtype, self.device = kinds.pop()
        self.statistics = _running_statistics(model)
        self.counters = _batch_counters(model)
        self.starts: list[int] = []
        at = 0
        for parameter in self.parameters:
            self.starts.append(at)
            at += parameter.numel()
        self.gradient_size = at
        self.statistics_starts: list[int] = []
        at = FIXED
        for buffer in self.statistics:
            self.statistics_starts.append(at)
            at += buffer.numel()
        self.size = self.gradient_size + at
        self.room = self.size + padding


def forget_gradients(layout: GradientLayout) -> None:
    """Backward adds to what is there: the last step's mean must not be."""
    for parameter in layout.parameters:
        parameter.grad = None


class RunningStatistics:
    """Running statistics as a function of the step, not of who ran what.

    Every micro-batch starts from the statistics the step began with; the step ends with their weighted mean.
    """

    def __init__(self, layout: GradientLayout) -> None:
        self._layout = layout
        self._before: list[torch.Tensor] = []
        self._counts: list[torch.Tensor] = []

    def begin(self) -> None:
        self._before = [buffer.clone() for buffer in self._layout.statistics]
        self._counts = [counter.clone() for counter in self._layout.counters]

    def rewind(self) -> None:
        for buffer, before in zip(self._layout.statistics, self._before, strict=True):
            buffer.copy_(before)

    def undo(self) -> None:
        """The step came to nothing: the model is as before it."""
        self.rewind()
        for counter, before in zip(self._layout.counters, self._counts, strict=True):
            counter.copy_(before)

    def settle(self, total: GradientBuffer) -> None:
        for buffer, mean in zip(self._layout.statistics, total.statistics, strict=True):
            buffer.copy_(mean)
        for counter, before in zip(self._layout.counters, self._counts, strict=True):
            counter.copy_(before + 1)


def _norm_layers(model: torch.nn.Module) -> list[_NormBase]:
    return [module for module in model.modules() if isinstance(module, _NormBase) and module.track_running_stats]


def _running_statistics(model: torch.nn.Module) -> list[torch.Tensor]:
    """Only these are averaged: other buffers are constants, which averaging could only spoil."""
    return [b for module in _norm_layers(model) for b in (module.running_mean, module.running_var) if b is not None]


def _batch_counters(model: torch.nn.Module) -> list[torch.Tensor]:
    counters = [module.num_batches_tracked for module in _norm_layers(model)]
    return [counter for counter in counters if counter is not None]
