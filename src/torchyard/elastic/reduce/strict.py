"""Strict reduction: gradients are added by micro-batch number, so every world size gives the same bits.

Each worker adds up its own subtrees. The ranks exchange the roots in slices: each rank completes the tree for its
slice, then all ranks gather the complete slices. With one subtree per rank this is exactly the
traffic of an all-reduce.
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
    clear_gradients,
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
        self._spare: list[GradientBuffer] = []
        self._sums: TreeAccumulator[GradientBuffer] = TreeAccumulator(micro_batches, self._add)

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
        self._spare += [buffer for _, buffer in self._sums.stack]
        self._sums.stack.clear()

    def before_last_backward(self) -> None:
        """Do nothing: the exchange begins after all own micro-batches."""

    def add(self, micro: int, loss: torch.Tensor, *, weight: float) -> None:
        """Add the gradients that backward has left in the parameters."""
        buffer = self._take_buffer()
        gradients = [parameter.grad for parameter in self.layout.parameters]
        present = [gradient for gradient in gradients if gradient is not None]
        if len(present) < len(gradients):
            for view, gradient in zip(buffer.grads, gradients, strict=True):
                if gradient is None:
                    view.zero_()
                else:
                    view.copy_(gradient)
        else:
            torch._foreach_copy_(buffer.grads, present)
        clear_gradients(self.layout)
        buffer.tail[:FIXED_TAIL].zero_()
        buffer.tail[LOSS] = loss
        self.layout.write_buffers(buffer, weight=weight)
        self._sums.push(TreeNode(0, micro), buffer)

    def _take_buffer(self) -> GradientBuffer:
        return self._spare.pop() if self._spare else GradientBuffer(self.layout)

    def _add(self, left: GradientBuffer, right: GradientBuffer) -> GradientBuffer:
        left.used.add_(right.used)
        self._spare.append(right)
        return left

    def finish(self, *, rendezvous: bool) -> tuple[GradientBuffer, bool]:
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
        own = [buffer for _, buffer in self._sums.stack]
        if len(own) == 1:
            outgoing = own[0].vector[: width * group.size]
        else:
            outgoing = self._pack(own)
        counts = [len(nodes) * width for nodes in self._nodes]
        group.wait(group.all_to_all(self._incoming.view(-1), outgoing, counts, [len(own) * width] * group.size))
        parts = zip((node for nodes in self._nodes for node in nodes), self._incoming.unbind(0), strict=True)
        finished = combine(parts, self._leaves, lambda left, right: left.add_(right))
        total = own[0]
        group.wait(group.all_gather(total.vector[: width * group.size], finished))
        return total

    def _pack(self, own: list[GradientBuffer]) -> torch.Tensor:
        """Return the slices in the order of their receivers, each with all own roots."""
        width = self._slice
        if self._outgoing is None:
            shape = (self._group.size, len(own), width)
            self._outgoing = torch.empty(shape, dtype=self.layout.dtype, device=self.layout.device)
        for root, buffer in enumerate(own):
            self._outgoing[:, root].copy_(buffer.vector[: width * self._group.size].view(self._group.size, width))
        return self._outgoing.view(-1)
