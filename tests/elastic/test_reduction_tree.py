"""The reduction tree: the same sum, bit for bit, however the micro-batches are shared out."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard.elastic.reduce.tree import TreeAccumulator, TreeNode, combine, roots
from torchyard.elastic.sampler import split_micro_batches


def plain(values: list[float]) -> float:
    while len(values) > 1:
        pairs = [values[at : at + 2] for at in range(0, len(values), 2)]
        values = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]


@given(st.integers(1, 40), st.data())
def test_any_distribution_of_micro_batches_gives_the_same_bits(leaves: int, data: st.DataObject) -> None:
    values = [random.Random(leaf).uniform(-1e6, 1e6) for leaf in range(leaves)]
    world = data.draw(st.integers(1, leaves))
    speeds = data.draw(st.lists(st.floats(0.2, 5), min_size=world, max_size=world))
    parts: list[tuple[TreeNode, float]] = []
    for block in split_micro_batches(leaves, world, speeds):
        own = TreeAccumulator[float](leaves, lambda left, right: left + right)
        for leaf in block:
            own.push(TreeNode(0, leaf), values[leaf])
        assert tuple(node for node, _ in own.stack) == roots(block, leaves)
        parts += own.stack
    assert combine(parts, leaves, lambda left, right: left + right) == plain(list(values))


@pytest.mark.parametrize(
    ("block", "leaves", "expected"),
    [
        (range(8), 8, [TreeNode(3, 0)]),
        (range(4, 8), 8, [TreeNode(2, 1)]),
        (range(1, 4), 4, [TreeNode(0, 1), TreeNode(1, 1)]),
        (range(4, 5), 5, [TreeNode(2, 1)]),
        (range(1), 1, [TreeNode(0, 0)]),
    ],
)
def test_a_block_sends_only_the_roots_of_its_largest_subtrees(
    block: range, leaves: int, expected: list[TreeNode]
) -> None:
    assert list(roots(block, leaves)) == expected


def test_an_incomplete_tree_has_no_total() -> None:
    accumulator = TreeAccumulator[float](4, lambda left, right: left + right)
    accumulator.push(TreeNode(0, 0), 1.0)
    with pytest.raises(ValueError, match="not complete"):
        accumulator.total()
