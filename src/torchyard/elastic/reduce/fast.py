"""Fast reduction: all-reduce in buckets that start while backward still runs, as in DistributedDataParallel.

The records and the mean gradient are those of the strict reduction; only the last bits depend on the world size.

A bucket may be sent only when backward adds nothing more to its gradients. Usually backward adds to a parameter once.
With reentrant checkpointing and a layer that is used several times it adds several times. So the first step counts the
additions and sends all buckets at its end; later steps send a bucket when that many additions have been made. If there
are more, all ranks learn it from the tail and exchange the late part once more.
"""

from __future__ import annotations

from typing import Any

import torch

from torchyard.elastic.reduce.buffers import MutableBuffers
from torchyard.elastic.reduce.gradient_buffer import (
    LATE,
    LOSS,
    RENDEZVOUS,
    GradientBuffer,
    GradientLayout,
    clear_gradients,
    take_gradients,
)
from torchyard.elastic.world.process_group import GroupBroken, ProcessGroup

FIRST_BUCKET = 1 << 20
BUCKET = 25 << 20
"""Bytes. As in DDP, a small first bucket starts the network early, and large ones use it efficiently."""
UNKNOWN = -1


class FastReducer:
    """Averages gradients with all-reduce.

    Args:
        model: the model whose gradients to average.
        micro_batches: the number of micro-batches in a step.
        buffers: the buffers that a forward pass changes; those of the normalization layers if None.
    """

    def __init__(self, model: torch.nn.Module, micro_batches: int, buffers: MutableBuffers | None = None) -> None:
        self.layout = GradientLayout(model, padding=0, buffers=buffers)
        self._buffer = GradientBuffer(self.layout)
        self._loss = self._buffer.tail[LOSS]
        self._edges, self._bucket_of = _buckets(self.layout)
        self._armed = False
        self._first = True
        self._uncollected: set[int] = set()
        self._late: set[int] = set()
        self._additions = [0] * len(self.layout.parameters)
        self._expected = [UNKNOWN] * len(self.layout.parameters)
        self._works: list[Any] = []
        self._error: GroupBroken | None = None
        self._hooks: list[Any] = []
        self._own: list[torch.Tensor] = []

    def enter_world(self, group: ProcessGroup, blocks: tuple[range, ...]) -> None:
        """Prepare for a world. A single worker needs no hooks, which interrupt backward for every parameter."""
        self._group = group
        if self._single:
            for hook in self._hooks:
                hook.remove()
            self._hooks = []
        elif not self._hooks:
            self._hooks = [
                parameter.register_post_accumulate_grad_hook(self._hook(index))  # type: ignore[no-untyped-call]
                for index, parameter in enumerate(self.layout.parameters)
            ]

    def begin(self) -> None:
        """Start a step."""
        clear_gradients(self.layout)
        self._armed = False
        self._works = []
        self._error = None
        self._launched = 0
        self._buffer.tail.zero_()
        self._first = True
        self._late = set()

    def before_last_backward(self) -> None:
        """Start to send full buckets: the backward of the last own micro-batch follows."""
        self._armed = not self._single
        self._uncollected = set(range(len(self.layout.parameters)))
        self._additions = [0] * len(self.layout.parameters)
        self._unfilled = [end - start for start, end in self._edges]
        self._launched = 0

    def _hook(self, index: int) -> Any:
        def ready(parameter: torch.nn.Parameter) -> None:
            if not self._armed:
                return
            self._additions[index] += 1
            if self._additions[index] != self._expected[index]:
                return  # more follows, or nobody knows how much
            self._collect(index, parameter)
            bucket = self._bucket_of[index]
            self._unfilled[bucket] -= 1
            # Every rank must start the buckets in the same order; the last one carries the tail.
            while self._launched < len(self._edges) - 1 and self._unfilled[self._launched] == 0:
                self._launch(self._launched)

        return ready

    @property
    def _single(self) -> bool:
        """Whether the world has one worker: then nothing is sent."""
        return self._group.size == 1

    def _collect(self, index: int, parameter: torch.nn.Parameter) -> None:
        self._uncollected.discard(index)
        view, gradient = self._buffer.grads[index], parameter.grad
        if gradient is None:
            if self._first:
                view.zero_()
        elif self._first:
            view.copy_(gradient)
        else:
            view.add_(gradient)
        parameter.grad = None

    def _launch(self, bucket: int) -> None:
        self._launched = bucket + 1
        start, end = self._edges[bucket]
        stop = self.layout.size if bucket == len(self._edges) - 1 else self.layout.starts[end]
        if self._error is None:
            try:
                self._works.append(self._group.all_reduce(self._buffer.vector[self.layout.starts[start] : stop]))
            except GroupBroken as error:
                self._error = error

    def add(self, micro: int, loss: torch.Tensor, *, weight: float) -> None:
        """Add the gradients that backward has left in the parameters."""
        if self._single:
            self._add_own()
        else:
            # While buckets are being sent, only the parameters that backward did not reach remain.
            left = sorted(self._uncollected) if self._armed else range(len(self.layout.parameters))
            for index in left:
                self._collect(index, self.layout.parameters[index])
        if self._armed:
            self._learn()
        self._loss.add_(loss)
        self.layout.add_buffers(self._buffer, weight=weight)
        self._first = False

    def _add_own(self) -> None:
        """Add the gradients of a micro-batch of a single worker, in the tensors that backward has left.

        Backward could add them itself, but what trains may clear the gradients before each micro-batch.
        """
        gradients = take_gradients(self.layout)
        if self._first:
            self._own = gradients
        else:
            torch._foreach_add_(self._own, gradients)

    def _learn(self) -> None:
        """Note how often backward has added to each gradient, and which gradients it added to after they were sent."""
        for index, parameter in enumerate(self.layout.parameters):
            if parameter.grad is not None:
                self._late.add(index)
            self._expected[index] = max(self._expected[index], self._additions[index])

    def finish(self, *, rendezvous: bool) -> tuple[GradientBuffer, bool]:
        """Put the mean gradient into the parameters; see `StrictReducer.finish`."""
        buffer = self._buffer
        if rendezvous:
            buffer.tail[RENDEZVOUS] = 1
        if not self._single:
            if self._late:
                buffer.tail[LATE] = 1
            for bucket in range(self._launched, len(self._edges)):
                self._launch(bucket)
            if self._error is not None:
                raise self._error
            self._group.wait(*self._works)
            if bool(buffer.tail[LATE] > 0):
                self._add_late()
        gradients = self._own if self._single else buffer.grads
        for parameter, gradient in zip(self.layout.parameters, gradients, strict=True):
            parameter.grad = gradient
        self._own = []
        self._armed = False
        # A single worker knows it already: to read it from a GPU would wait for the whole step.
        return buffer, rendezvous if self._single else bool(buffer.tail[RENDEZVOUS] > 0)

    def _add_late(self) -> None:
        """Exchange the gradients that were added after their bucket was sent, on any rank."""
        late = GradientBuffer(self.layout)
        for index in self._late:
            gradient = self.layout.parameters[index].grad
            if gradient is not None:
                late.grads[index].copy_(gradient)
        gradients = late.vector[: self.layout.gradient_size]
        self._group.wait(self._group.all_reduce(gradients))
        self._buffer.vector[: self.layout.gradient_size].add_(gradients)


def _buckets(layout: GradientLayout) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the range of parameters of each bucket, and the bucket of each parameter."""
    edges: list[tuple[int, int]] = []
    owner, start, capacity = [], 0, FIRST_BUCKET
    size = torch.empty(0, dtype=layout.dtype).element_size()
    for index, parameter in enumerate(layout.parameters):
        owner.append(len(edges))
        capacity -= parameter.numel() * size
        if capacity <= 0 or index + 1 == len(layout.parameters):
            edges.append((start, index + 1))
            start, capacity = index + 1, BUCKET
    return edges, owner
