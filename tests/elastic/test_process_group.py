"""Real gloo groups of two ranks in one process: a group that was aborted never waits."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

import torch

from torchyard.elastic.wire import Fence
from torchyard.elastic.world.process_group import GroupBroken, ProcessGroup

pytestmark = pytest.mark.train
FENCE = Fence(1, 1)


class SharedStore:
    """What a group needs of the coordinator's clients, for all ranks."""

    own_address = "127.0.0.1"

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self.formed: Callable[[], None] = lambda: None

    def set_value(self, fence: Fence, key: str, value: bytes) -> None:
        self._values[key] = value

    def get_value(self, fence: Fence, key: str) -> bytes:
        return self._values[key]

    def has_values(self, fence: Fence, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def wait_values(self, fence: Fence, keys: list[str], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not self.has_values(fence, keys):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no rank has published {keys}")
            time.sleep(0.001)

    def run_unless_superseded(self, fence: Fence, work: Callable[[], Any], timeout: float) -> Any:
        groups = work()
        self.formed()
        return groups

    def fileno(self) -> int:
        return -1


@contextmanager
def two_ranks() -> Iterator[list[ProcessGroup]]:
    groups = [ProcessGroup(rank, 2) for rank in range(2)]
    try:
        yield groups
    finally:
        for group in groups:
            group.close()


def connect(groups: list[ProcessGroup]) -> list[Exception | None]:
    store: Any = SharedStore()

    def connect_one(group: ProcessGroup) -> Exception | None:
        try:
            group.connect(store, FENCE)
        except GroupBroken as error:
            return error
        return None

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(connect_one, groups))


def raises_soon(work: Callable[[], Any]) -> BaseException | None:
    """Run what may wait for ever in a thread; return what it raises."""
    outcome: list[BaseException | None] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            outcome.append(error)
        else:
            outcome.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert outcome, "it still waits"
    return outcome[0]


def test_a_group_that_is_aborted_between_two_collectives_waits_for_nobody() -> None:
    with two_ranks() as groups:
        assert connect(groups) == [None, None]
        sums = [torch.ones(2), torch.full((2,), 2.0)]
        works = [group.all_reduce(tensor) for group, tensor in zip(groups, sums, strict=True)]
        for group, work in zip(groups, works, strict=True):
            group.wait(work)
        assert [tensor.tolist() for tensor in sums] == [[3.0, 3.0], [3.0, 3.0]]
        groups[0].abort()
        assert isinstance(raises_soon(lambda: groups[0].all_reduce(torch.ones(2))), GroupBroken)


def test_a_group_that_is_aborted_while_it_forms_is_broken() -> None:
    with two_ranks() as groups:
        store: Any = SharedStore()
        store.formed = groups[0].abort
        with ThreadPoolExecutor(2) as pool:
            other = pool.submit(groups[1].connect, store, FENCE)
            with pytest.raises(GroupBroken, match="aborted while it formed"):
                groups[0].connect(store, FENCE)
            other.result()
