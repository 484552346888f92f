"""Fast reduction: ordinary all-reduce in buckets that start while backward still runs.

Same records, same mean gradient as the strict one; only the last bits depend on the world size.
"""

from __future__ import annotations

from typing import Any

import torch

from torchyard.elastic.reduce.gradient_buffer import FLAG, LOSS, GradientBuffer, GradientLayout, forget_gradients
from torchyard.elastic.world.process_group import GroupBroken, ProcessGroup

FIRST_BUCKET = 1 << 20
BUCKET = 25 << 20
"""Bytes. As in DDP: a small first bucket starts the network early, large ones keep it efficient."""


class FastReducer:
    def __init__(self, model: torch.nn.Module, micro_batches: int) -> None:
        self.layout = GradientLayout(model, padding=0)
        self._flat = GradientBuffer(self.layout)
        self._loss = self._flat.tail[LOSS]
        self._edges, self._bucket_of = _buckets(self.layout)
        self._armed = False
        self._fresh = True
        self._waiting: set[int] = set()
        self._works: list[Any] = []
        self._fault: GroupBroken | None = None
        self._hooks: list[Any] = []

    def enter(self, group: ProcessGroup, blocks: tuple[range, ...]) -> None:
        """Hooks interrupt backward for every parameter: alone there is nothing they could start."""
        self._group = group
        if self._alone:
            for hook in self._hooks:
                hook.remove()
            self._hooks = []
        elif not self._hooks:
            self._hooks = [
                parameter.register_post_accumulate_grad_hook(self._hook(place))  # type: ignore[no-untyped-call]
                for place, parameter in enumerate(self.layout.parameters)
            ]

    def begin(self) -> None:
        forget_gradients(self.layout)
        self._armed = False
        self._works = []
        self._fault = None
        self._launched = 0
        self._flat.tail.zero_()
        self._fresh = True

    def expect_last(self, micro: int) -> None:
        """Backward of the last own micro-batch: from here on, a full bucket may go."""
        self._armed = not self._alone
        self._waiting = set(range(len(self.layout.parameters)))
        self._missing = [end - start for start, end in self._edges]
        self._launched = 0

    def _hook(self, place: int) -> Any:
        def ready(parameter: torch.nn.Parameter) -> None:
            if not self._armed:
                return
            self._collect(place, parameter)
            bucket = self._bucket_of[place]
            self._missing[bucket] -= 1
            # Every rank must start the buckets in the same order, and the last carries the tail.
            while self._launched < len(self._edges) - 1 and self._missing[self._launched] == 0:
                self._launch(self._launched)

        return ready

    @property
    def _alone(self) -> bool:
        """Nothing is sent: backward itself adds up the micro-batches, where they are."""
        return self._group.size == 1

    def _collect(self, place: int, parameter: torch.nn.Parameter) -> None:
        self._waiting.discard(place)
        view, gradient = self._flat.grads[place], parameter.grad
        if gradient is None:
            if self._fresh:
                view.zero_()
        elif self._fresh:
            view.copy_(gradient)
        else:
            view.add_(gradient)
        parameter.grad = None

    def _launch(self, bucket: int) -> None:
        self._launched = bucket + 1
        start, end = self._edges[bucket]
        stop = self.layout.size if bucket == len(self._edges) - 1 else self.layout.starts[end]
        if self._fault is None:
            try:
                self._works.append(self._group.all_reduce(self._flat.vector[self.layout.starts[start] : stop]))
            except GroupBroken as fault:
                self._fault = fault

    def add(self, micro: int, loss: torch.Tensor, *, weight: float) -> None:
        # With buckets under way, only the parameters that backward did not reach are left.
        left = sorted(self._waiting) if self._armed else range(len(self.layout.parameters))
        for place in [] if self._alone else left:
            self._collect(place, self.layout.parameters[place])
        self._loss.add_(loss)
        for view, buffer in zip(self._flat.statistics, self.layout.statistics, strict=True):
            view.add_(buffer, alpha=weight)
        self._fresh = False

    def finish(self, *, change: bool) -> tuple[GradientBuffer, bool]:
        flat = self._flat
        if change:
            flat.tail[FLAG] = 1
        if not self._alone:
            for bucket in range(self._launched, len(self._edges)):
                self._launch(bucket)
            if self._fault is not None:
                raise self._fault
            self._group.wait(*self._works)
            for parameter, gradient in zip(self.layout.parameters, flat.grads, strict=True):
                parameter.grad = gradient
        for parameter in self.layout.parameters:
            if parameter.grad is None:  # it took no part; with others it would have had zeros too
                parameter.grad = torch.zeros_like(parameter)
        self._armed = False
        # Alone the answer is known here: asking a GPU for it would wait for the whole step.
        return flat, change if self._alone else bool(flat.tail[FLAG] > 0)


def _buckets(layout: GradientLayout) -> tuple[list[tuple[int, int]], list[int]]:
    """Ranges of parameters, and the bucket of each."""
    edges: list[tuple[int, int]] = []
    owner, start, room = [], 0, FIRST_BUCKET
    size = torch.empty(0, dtype=layout.dtype).element_size()
    for place, parameter in enumerate(layout.parameters):
        owner.append(len(edges))
        room -= parameter.numel() * size
        if room <= 0 or place + 1 == len(layout.parameters):
            edges.append((start, place + 1))
            start, room = place + 1, BUCKET
    return edges, owner
