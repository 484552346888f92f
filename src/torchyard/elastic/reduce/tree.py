"""The shape of the reduction: a binary tree over micro-batch numbers, independent of the world size.

Floating-point addition is not associative, so the order of the additions decides the bits. Here a node is the sum of
its two children, and the micro-batch numbers alone determine the children. A worker adds up complete subtrees of its
own block and sends only their roots. Pure: it needs nothing of tensors but addition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class TreeNode(NamedTuple):
    """A subtree that covers the micro-batches [position << level, (position + 1) << level); a leaf has level 0."""

    level: int
    position: int


def width(level: int, leaves: int) -> int:
    """Return the number of nodes in a level. A node without a sibling moves up unchanged."""
    return -(-leaves >> level) if level else leaves


def top(leaves: int) -> int:
    return max(0, (leaves - 1).bit_length())


def parent(node: TreeNode) -> TreeNode:
    return TreeNode(node.level + 1, node.position // 2)


def roots(block: range, leaves: int) -> tuple[TreeNode, ...]:
    """Return the largest complete subtrees inside a block of micro-batches, from left to right."""
    nodes = []
    first = block.start
    while first < block.stop:
        node = TreeNode(0, first)
        while node.level < top(leaves) and node.position % 2 == 0:
            up = parent(node)
            if min((up.position + 1) << up.level, leaves) > block.stop:
                break
            node = up
        nodes.append(node)
        first = min((node.position + 1) << node.level, leaves)
    return tuple(nodes)


class TreeAccumulator(Generic[T]):
    """Adds leaves or roots of subtrees, pushed from left to right, in the order of the tree; one value per level."""

    def __init__(self, leaves: int, add: Callable[[T, T], T]) -> None:
        self._leaves = leaves
        self._add = add
        self.stack: list[tuple[TreeNode, T]] = []

    def push(self, node: TreeNode, value: T) -> None:
        self.stack.append((node, value))
        self._fold()

    def _fold(self) -> None:
        while True:
            node, value = self.stack[-1]
            if node.level >= top(self._leaves):
                return
            if node.position % 2:
                if len(self.stack) < 2 or self.stack[-2][0] != TreeNode(node.level, node.position - 1):
                    return
                self.stack.pop()
                _, left = self.stack.pop()
                self.stack.append((parent(node), self._add(left, value)))
            elif node.position + 1 == width(node.level, self._leaves):
                self.stack[-1] = (parent(node), value)
            else:
                return

    def total(self) -> T:
        (node, value), *rest = self.stack
        if rest or node.level != top(self._leaves):
            raise ValueError(f"the tree is not complete: {[node for node, _ in self.stack]}")
        return value


def combine(parts: Iterable[tuple[TreeNode, T]], leaves: int, add: Callable[[T, T], T]) -> T:
    """Return the root of the tree from subtrees that cover it, from left to right."""
    accumulator = TreeAccumulator[T](leaves, add)
    for node, value in parts:
        accumulator.push(node, value)
    return accumulator.total()
