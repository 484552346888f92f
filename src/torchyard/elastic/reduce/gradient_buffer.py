"""The gradients of a model, with a tail for everything else that the workers agree on in a step.

The tail carries whether the world is to end, the loss, and the buffers that a forward pass changes, such as the running
statistics of normalization layers. They travel with the gradients, as one vector, so the agreement needs no message of
its own.
"""

from __future__ import annotations

import torch

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.reduce.buffers import MutableBuffers

RENDEZVOUS, LOSS, LATE, FIXED_TAIL = 0, 1, 2, 3
"""Positions in the tail: whether the world ends, the loss, and whether a gradient came after its bucket was sent."""


class Gradients:
    """Gradients in the shapes of the parameters, and the tail of a step with its views."""

    def __init__(self, layout: GradientLayout, grads: list[torch.Tensor], tail: torch.Tensor) -> None:
        self.grads = grads
        self.tail = tail
        views = [
            tail[start : start + buffer.numel()].view_as(buffer)
            for buffer, start in zip(layout.averaged, layout.averaged_starts, strict=True)
        ]
        self.statistics, self.increments = views[: len(layout.statistics)], views[len(layout.statistics) :]


class GradientBuffer(Gradients):
    """Gradients and tail that are views of one vector, as they are sent."""

    def __init__(self, layout: GradientLayout) -> None:
        self.vector = torch.zeros(layout.capacity, dtype=layout.dtype, device=layout.device)
        grads = [
            _view(self.vector, start, parameter)
            for parameter, start in zip(layout.parameters, layout.starts, strict=True)
        ]
        super().__init__(layout, grads, self.vector[layout.gradient_size : layout.size])

    def copy_(self, source: Gradients) -> None:
        torch._foreach_copy_(self.grads, source.grads)
        self.tail.copy_(source.tail)


class GradientLayout:
    """Where the gradient of each parameter is in the vector.

    Args:
        model: the model whose parameters to lay out.
        padding: how many elements to add, so that the vector divides into equal slices.
        buffers: the buffers that a forward pass changes; those of the normalization layers if None.
    """

    def __init__(self, model: torch.nn.Module, *, padding: int, buffers: MutableBuffers | None = None) -> None:
        # Backward computes the gradients of the last parameters first: in reverse order a prefix is ready early.
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad][::-1]
        if not self.parameters:
            raise ElasticError(
                "NothingToTrain",
                "the model has no parameter that requires a gradient",
                hint="set requires_grad on some parameters",
            )
        types = {(parameter.dtype.to_real(), parameter.device) for parameter in self.parameters}
        if len(types) > 1:
            raise ElasticError(
                "MixedModel",
                f"the trainable parameters have several types or devices: {sorted(map(str, types))}",
                hint="use one dtype and one device for all trainable parameters; use autocast for mixed precision",
            )
        self.dtype, self.device = types.pop()
        self.buffers = buffers or MutableBuffers.of_norm_layers(model)
        self.buffers.check_precision(self.dtype)
        self.statistics, self.counters = self.buffers.statistics, self.buffers.counters
        self.averaged = [*self.statistics, *self.counters]
        self.starts: list[int] = []
        offset = 0
        for parameter in self.parameters:
            offset += offset % _width(parameter)  # a complex number starts at an even position
            self.starts.append(offset)
            offset += _width(parameter) * parameter.numel()
        self.gradient_size = offset
        self.averaged_starts: list[int] = []
        offset = FIXED_TAIL
        for buffer in self.averaged:
            self.averaged_starts.append(offset)
            offset += buffer.numel()
        self.tail_size = offset
        self.size = self.gradient_size + self.tail_size
        self.capacity = self.size + padding
        self.initial_counters: list[torch.Tensor] = [counter.clone() for counter in self.counters]

    def write_buffers(self, into: Gradients, *, weight: float) -> None:
        """Write what a micro-batch has made of the model's buffers."""
        self.buffers.take_assigned()
        for view, statistic in zip(into.statistics, self.statistics, strict=True):
            torch.mul(statistic, weight, out=view)
        for view, counter, initial in zip(into.increments, self.counters, self.initial_counters, strict=True):
            view.copy_(_growth(counter, initial)).mul_(weight)

    def add_buffers(self, into: Gradients, *, weight: float) -> None:
        """As `write_buffers`, but add to what is there."""
        self.buffers.take_assigned()
        for view, statistic in zip(into.statistics, self.statistics, strict=True):
            view.add_(statistic, alpha=weight)
        for view, counter, initial in zip(into.increments, self.counters, self.initial_counters, strict=True):
            view.add_(_growth(counter, initial).to(self.dtype), alpha=weight)


def _width(parameter: torch.Tensor) -> int:
    """Return how many real numbers an element has: gradients travel as real numbers."""
    return 2 if parameter.is_complex() else 1


def _view(vector: torch.Tensor, start: int, parameter: torch.Tensor) -> torch.Tensor:
    """Return a part of a vector of real numbers as the gradient of a parameter."""
    part = vector[start : start + _width(parameter) * parameter.numel()]
    if not parameter.is_complex():
        return part.view_as(parameter)
    return torch.view_as_complex(part.view(*parameter.shape, 2))


def _growth(counter: torch.Tensor, initial: torch.Tensor) -> torch.Tensor:
    """Subtract as integers: a 16-bit float cannot hold a large count, but it can hold its growth in a step."""
    return counter.to(torch.int64) - initial.to(torch.int64)


def take_gradients(layout: GradientLayout) -> list[torch.Tensor]:
    """Move the gradients out of the parameters. A parameter that backward did not reach has a gradient of zero.

    They are not copied: backward has made them for the parameter alone. The program may have put others in their place:
    one that is shared or that cannot be added to in place is copied.
    """
    taken: list[torch.Tensor] = []
    places: set[int] = set()
    for parameter in layout.parameters:
        gradient = parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(parameter, requires_grad=False)
        elif gradient.data_ptr() in places or not _can_be_added_to(gradient, parameter):
            gradient = torch.empty_like(parameter, requires_grad=False).copy_(gradient.detach())
        places.add(gradient.data_ptr())
        parameter.grad = None
        taken.append(gradient)
    return taken


def _can_be_added_to(gradient: torch.Tensor, parameter: torch.Tensor) -> bool:
    return gradient.dtype is parameter.dtype and gradient.stride() == parameter.stride() and not gradient.requires_grad


def clear_gradients(layout: GradientLayout) -> None:
    """Remove all gradients, because backward adds to the present ones."""
    for parameter in layout.parameters:
        parameter.grad = None


class RunningStatistics:
    """Makes the buffers of a model a function of the step, not of the distribution of micro-batches.

    Every micro-batch starts from the buffers at the start of the step. The step ends with their weighted mean, and with
    counters that have grown by the weighted mean of their increments. A buffer that is not part of the model's state
    starts every micro-batch from its first value: after a resume it has no other.
    """

    def __init__(self, layout: GradientLayout) -> None:
        self._layout = layout
        self._initial: list[torch.Tensor] = []
        self._first_transients = [buffer.clone() for buffer in layout.buffers.transients]

    def begin(self) -> None:
        """Remember the buffers at the start of a step."""
        self._initial = [buffer.clone() for buffer in self._layout.statistics]
        self._layout.initial_counters = [counter.clone() for counter in self._layout.counters]

    def rewind(self) -> None:
        """Go back to the start of the step before a micro-batch."""
        layout = self._layout
        layout.buffers.take_assigned()
        for buffer, initial in zip(layout.statistics, self._initial, strict=True):
            buffer.copy_(initial)
        for counter, initial in zip(layout.counters, layout.initial_counters, strict=True):
            counter.copy_(initial)
        for buffer, first in zip(layout.buffers.transients, self._first_transients, strict=True):
            buffer.copy_(first)

    def restore(self) -> None:
        """Restore the buffers after a step that was not applied."""
        self.rewind()

    def apply_mean(self, total: Gradients) -> None:
        """End the step with the mean of all micro-batches."""
        layout = self._layout
        for buffer, mean in zip(layout.statistics, total.statistics, strict=True):
            buffer.copy_(mean)
        for counter, initial, growth in zip(layout.counters, layout.initial_counters, total.increments, strict=True):
            counter.copy_(initial + growth.round().to(torch.int64))
        for buffer, first in zip(layout.buffers.transients, self._first_transients, strict=True):
            buffer.copy_(first)
