"""The shape of the reduction: a binary tree over micro-batch numbers, which no world size can change.

Floating-point addition is not associative, so the order of the additions decides the bits. Here a node is the sum of
its two children, and the children are fixed by the micro-batch numbers alone. A worker adds up whole sub-trees of its
own block and ships only their roots. Pure; knows nothing of tensors but that they can be added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class TreeNode(NamedTuple):
    """A sub-tree, a leaf at level 0: it covers micro-batches [place << level, (place + 1) << level)."""

    level: int
    place: int


def width(level: int, leaves: int) -> int:
    """How many nodes a level has: an odd one out is carried up unchanged."""
    return -(-leaves >> level) if level else leaves


def top(leaves: int) -> int:
    return max(0, (leaves - 1).bit_length())


def parent(node: TreeNode) -> TreeNode:
    return TreeNode(node.level + 1, node.place // 2)


def roots(block: range, leaves: int) -> tuple[TreeNode, ...]:
    """The largest whole sub-trees inside a block of micro-batches, left to right."""
    found = []
    first = block.start
    while first < block.stop:
        node = TreeNode(0, first)
        while node.level < top(leaves) and node.place % 2 == 0:
            above = parent(node)
            if min((above.place + 1) << above.level, leaves) > block.stop:
                break
            node = above
        found.append(node)
        first = min((node.place + 1) << node.level, leaves)
    return tuple(found)


class TreeAccumulator(Generic[T]):
    """Adds leaves or sub-tree roots, given left to right, in the order of the tree; holds one value per level."""

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
            if node.place % 2:
                if len(self.stack) < 2 or self.stack[-2][0] != TreeNode(node.level, node.place - 1):
                    return
                self.stack.pop()
                _, left = self.stack.pop()
                self.stack.append((parent(node), self._add(left, value)))
            elif node.place + 1 == width(node.level, self._leaves):
                self.stack[-1] = (parent(node), value)
            else:
                return

    def total(self) -> T:
        (node, value), *rest = self.stack
        if rest or node.level != top(self._leaves):
            raise ValueError(f"the tree is not complete: {[held for held, _ in self.stack]}")
        return value


def combine(parts: Iterable[tuple[TreeNode, T]], leaves: int, add: Callable[[T, T], T]) -> T:
    """The root of the tree from any set of sub-trees that covers it, given left to right."""
    accumulator = TreeAccumulator[T](leaves, add)
    for node, value in parts:
        accumulator.push(node, value)
    return accumulator.total()
