"""Strict reduction: gradients are added by micro-batch number, so every world size gives the same bits.

Each worker adds up its own subtrees, in the tensors that backward has left. The ranks exchange the roots in slices:
each rank completes the tree for its slice, then all ranks gather the complete slices. With one subtree per rank this is
exactly the traffic of an all-reduce.
"""

from __future__ import annotations

import torch

from torchyard.elastic.reduce.buffers import MutableBuffers
from torchyard.elastic.reduce.gradient_buffer import (
    FIXED_TAIL,
    LOSS,
    RENDEZVOUS,
    GradientBuffer,
    GradientLayout,
    Gradients,
    clear_gradients,
    take_gradients,
)
from torchyard.elastic.reduce.tree import TreeAccumulator, TreeNode, combine, roots
from torchyard.elastic.world.process_group import ProcessGroup


class StrictReducer:
    """Averages gradients in the order of a fixed tree.

    Args:
        model: the model whose gradients to average.
        micro_batches: the number of micro-batches in a step.
        buffers: the buffers that a forward pass changes; those of the normalization layers if None.
    """

    def __init__(self, model: torch.nn.Module, micro_batches: int, buffers: MutableBuffers | None = None) -> None:
        self.layout = GradientLayout(model, padding=micro_batches, buffers=buffers)
        self._leaves = micro_batches
        self._spare: list[Gradients] = []
        self._sums: TreeAccumulator[Gradients] = TreeAccumulator(micro_batches, self._add)
        self._buffer: GradientBuffer | None = None

    def enter_world(self, group: ProcessGroup, blocks: tuple[range, ...]) -> None:
        """Prepare for a world. The blocks of the ranks decide what is sent, never the result."""
        self._group = group
        self._nodes = [roots(block, self._leaves) for block in blocks]
        self._slice = -(-self.layout.size // group.size)
        self._outgoing: torch.Tensor | None = None
        self._incoming = torch.empty(
            (sum(map(len, self._nodes)), self._slice), dtype=self.layout.dtype, device=self.layout.device
        )

    def begin(self) -> None:
        """Start a step."""
        clear_gradients(self.layout)
        for _, gradients in self._sums.stack:
            self._release(gradients)
        self._sums.stack.clear()

    def before_last_backward(self) -> None:
        """Do nothing: the exchange begins after all own micro-batches."""

    def add(self, micro: int, loss: torch.Tensor, *, weight: float) -> None:
        """Add the gradients that backward has left in the parameters."""
        leaf = self._spare.pop() if self._spare else self._new_gradients()
        leaf.grads = take_gradients(self.layout)
        leaf.tail[:FIXED_TAIL].zero_()
        leaf.tail[LOSS] = loss
        self.layout.write_buffers(leaf, weight=weight)
        self._sums.push(TreeNode(0, micro), leaf)

    def _new_gradients(self) -> Gradients:
        layout = self.layout
        return Gradients(layout, [], torch.zeros(layout.tail_size, dtype=layout.dtype, device=layout.device))

    def _add(self, left: Gradients, right: Gradients) -> Gradients:
        torch._foreach_add_(left.grads, right.grads)
        left.tail.add_(right.tail)
        self._release(right)
        return left

    def _release(self, gradients: Gradients) -> None:
        gradients.grads = []
        self._spare.append(gradients)

    def finish(self, *, rendezvous: bool) -> tuple[Gradients, bool]:
        """Put the mean gradient into the parameters.

        Args:
            rendezvous: whether this worker knows that the world is to end after this step.

        Returns:
            the totals of the step, and whether any worker knows that the world is to end.
        """
        own = self._sums.stack
        if rendezvous:
            own[0][1].tail[RENDEZVOUS] = 1
        single = self._group.size == 1
        total = self._sums.total() if single else self._exchange()
        for parameter, gradient in zip(self.layout.parameters, total.grads, strict=True):
            parameter.grad = gradient
        # A single worker knows it already: to read it from a GPU would wait for the whole step.
        return total, rendezvous if single else bool(total.tail[RENDEZVOUS] > 0)

    def _exchange(self) -> GradientBuffer:
        group, width = self._group, self._slice
        if self._buffer is None:
            self._buffer = GradientBuffer(self.layout)
        total = self._buffer
        own = [gradients for _, gradients in self._sums.stack]
        sent = total.vector[: width * group.size]
        outgoing = self._pack(own, total, sent)
        counts = [len(nodes) * width for nodes in self._nodes]
        group.wait(group.all_to_all(self._incoming.view(-1), outgoing, counts, [len(own) * width] * group.size))
        parts = zip((node for nodes in self._nodes for node in nodes), self._incoming.unbind(0), strict=True)
        finished = combine(parts, self._leaves, lambda left, right: left.add_(right))
        group.wait(group.all_gather(sent, finished))
        return total

    def _pack(self, own: list[Gradients], buffer: GradientBuffer, sent: torch.Tensor) -> torch.Tensor:
        """Return the slices in the order of their receivers, each with all own roots."""
        if len(own) == 1:
            buffer.copy_(own[0])
            return sent
        size, width = self._group.size, self._slice
        if self._outgoing is None:
            self._outgoing = torch.empty((size, len(own), width), dtype=self.layout.dtype, device=self.layout.device)
        for root, gradients in enumerate(own):
            buffer.copy_(gradients)
            self._outgoing[:, root].copy_(sent.view(size, width))
        return self._outgoing.view(-1)
