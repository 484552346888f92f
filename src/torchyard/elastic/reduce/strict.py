"""Strict reduction: gradients are added by micro-batch number, so every world size gives the same bits.

Each worker adds up its own sub-trees; the roots are exchanged in slices (every rank finishes the tree for its slice),
and the finished slices are gathered. With one sub-tree per rank that is exactly the traffic of an all-reduce.
"""

from __future__ import annotations

import torch

from torchyard.elastic.reduce.gradient_buffer import FLAG, LOSS, GradientBuffer, GradientLayout, forget_gradients
from torchyard.elastic.reduce.tree import TreeAccumulator, TreeNode, combine, roots
from torchyard.elastic.world.process_group import ProcessGroup


class StrictReducer:
    def __init__(self, model: torch.nn.Module, micro_batches: int) -> None:
        self.layout = GradientLayout(model, padding=micro_batches)
        self._leaves = micro_batches
        self._spare: list[GradientBuffer] = []
        self._sums: TreeAccumulator[GradientBuffer] = TreeAccumulator(micro_batches, self._add)

    def enter(self, group: ProcessGroup, blocks: tuple[range, ...]) -> None:
        """A new world: who owns which micro-batches decides what is shipped, never what comes out."""
        self._group = group
        self._nodes = [roots(block, self._leaves) for block in blocks]
        self._slice = -(-self.layout.size // group.size)
        self._outgoing: torch.Tensor | None = None
        self._incoming = torch.empty(
            (sum(map(len, self._nodes)), self._slice), dtype=self.layout.dtype, device=self.layout.device
        )

    def begin(self) -> None:
        forget_gradients(self.layout)
        self._spare += [flat for _, flat in self._sums.stack]
        self._sums.stack.clear()

    def expect_last(self, micro: int) -> None:
        """Nothing to prepare: the exchange begins when all own micro-batches are done."""

    def add(self, micro: int, loss: torch.Tensor, *, weight: float) -> None:
        """Take the gradients that backward has just left in the parameters."""
        flat = self._take()
        gradients = [parameter.grad for parameter in self.layout.parameters]
        present = [gradient for gradient in gradients if gradient is not None]
        if len(present) < len(gradients):
            for view, gradient in zip(flat.grads, gradients, strict=True):
                if gradient is None:
                    view.zero_()
                else:
                    view.copy_(gradient)
        else:
            torch._foreach_copy_(flat.grads, present)
        forget_gradients(self.layout)
        flat.tail[FLAG] = 0
        flat.tail[LOSS] = loss
        for view, buffer in zip(flat.statistics, self.layout.statistics, strict=True):
            torch.mul(buffer, weight, out=view)
        self._sums.push(TreeNode(0, micro), flat)

    def _take(self) -> GradientBuffer:
        return self._spare.pop() if self._spare else GradientBuffer(self.layout)

    def _add(self, left: GradientBuffer, right: GradientBuffer) -> GradientBuffer:
        left.used.add_(right.used)
        self._spare.append(right)
        return left

    def finish(self, *, change: bool) -> tuple[GradientBuffer, bool]:
        """The mean gradient is in the parameters afterwards; also tells whether anyone wishes a change."""
        own = self._sums.stack
        if change:
            own[0][1].tail[FLAG] = 1
        alone = self._group.size == 1
        total = self._sums.total() if alone else self._exchange()
        for parameter, gradient in zip(self.layout.parameters, total.grads, strict=True):
            parameter.grad = gradient
        # Alone the answer is known here: asking a GPU for it would wait for the whole step.
        return total, change if alone else bool(total.tail[FLAG] > 0)

    def _exchange(self) -> GradientBuffer:
        group, width = self._group, self._slice
        own = [flat for _, flat in self._sums.stack]
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
        """Slices by receiver, each with all own roots."""
        width = self._slice
        if self._outgoing is None:
            shape = (self._group.size, len(own), width)
            self._outgoing = torch.empty(shape, dtype=self.layout.dtype, device=self.layout.device)
        for root, flat in enumerate(own):
            self._outgoing[:, root].copy_(flat.vector[: width * self._group.size].view(self._group.size, width))
        return self._outgoing.view(-1)
