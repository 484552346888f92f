"""The collectives of a world whose ranks are threads of this process: for tests of reducers without sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch


class ThreadWorld:
    """The meeting point of the ranks."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=60)
        self._values: dict[int, torch.Tensor] = {}

    def exchange(self, rank: int, value: torch.Tensor) -> list[torch.Tensor]:
        self._barrier.wait()
        self._values[rank] = value.clone()
        self._barrier.wait()
        return [self._values[other] for other in range(self.size)]

    def run(self, rank_of: Callable[[int, Any], Any]) -> list[Any]:
        """Call `rank_of(rank, group)` in a thread for each rank, and return the results."""
        results: list[Any] = [None] * self.size

        def work(rank: int) -> None:
            try:
                results[rank] = rank_of(rank, ThreadGroup(self, rank))
            except BaseException as error:
                results[rank] = error
                self._barrier.abort()

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results


class ThreadGroup:
    """Has the methods of `ProcessGroup` that reducers use."""

    def __init__(self, world: ThreadWorld, rank: int) -> None:
        self._world = world
        self.rank, self.size = rank, world.size

    def all_reduce(self, tensor: torch.Tensor) -> None:
        parts = self._world.exchange(self.rank, tensor)
        tensor.copy_(sum(parts[1:], parts[0]))

    def all_gather(self, output: torch.Tensor, value: torch.Tensor) -> None:
        output.copy_(torch.cat(self._world.exchange(self.rank, value)))

    def all_to_all(
        self, output: torch.Tensor, value: torch.Tensor, output_split: Sequence[int], input_split: Sequence[int]
    ) -> None:
        sent = self._world.exchange(self.rank, value)
        own = [torch.split(part, part.numel() // self.size)[self.rank] for part in sent]
        output.copy_(torch.cat(own))

    def wait(self, *works: Any) -> None:
        """Do nothing: the collectives above are complete when they return."""
