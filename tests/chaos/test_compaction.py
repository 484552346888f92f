"""Many objects are created, updated and deleted: afterwards the file is small again, and memory is as before."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.effort import FULL, rounds

from torchyard.api.gvr import CONFIG_MAPS
from torchyard.api.objects import Object
from torchyard.kube.client import Client
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600 if FULL else 300)]

OBJECTS, VALUE_BYTES = rounds(1500, 50_000), 4000
CYCLES = 2
MEGABYTE = 1_000_000
# What the store keeps of the free pages for the next writes, and the rest of its content.
SMALL_FILE = 8 * MEGABYTE


def _config_map(number: int, letter: str) -> Object:
    return {"metadata": {"name": f"c{number}", "namespace": "default"}, "data": {"value": letter * VALUE_BYTES}}


async def _for_each_object(work: Callable[[int], Coroutine[Any, Any, object]]) -> None:
    numbers = iter(range(OBJECTS))

    async def take_turns() -> None:
        for number in numbers:
            await work(number)

    await asyncio.gather(*(take_turns() for _ in range(64)))


async def _cycle(client: Client) -> None:
    await _for_each_object(lambda number: client.create(CONFIG_MAPS, _config_map(number, "a"), "default"))
    await _for_each_object(lambda number: client.update(CONFIG_MAPS, _config_map(number, "b")))
    await _for_each_object(lambda number: client.delete(CONFIG_MAPS, f"c{number}", "default"))


async def _compact(plane: Plane) -> None:
    """As the plane does after five minutes, then move the write-ahead log into the file."""
    for _ in plane.registry.store.compaction(keep_seconds=0, keep_revisions=0):
        await asyncio.sleep(0)


def _size(state: Path) -> int:
    return (state / "store.db").stat().st_size


async def test_after_a_compaction_the_file_is_small_and_memory_as_before(tmp_path: Path) -> None:
    state, process = tmp_path / "state", psutil.Process()
    memory, sizes = [], []
    async with Plane(PlaneSettings(state=state, port=0, controllers="-*")) as plane:
        client = plane.client("test")
        for _ in range(CYCLES):
            await _cycle(client)
            await _compact(plane)
            plane.registry.store._log.checkpoint()
            gc.collect()
            memory.append(process.memory_info().rss)
            sizes.append(_size(state))
    sizes.append(_size(state))  # closing the store moved the rest of the write-ahead log into the file
    print(f"objects={OBJECTS} memory_mb={[used // MEGABYTE for used in memory]} file_bytes={sizes}")
    largest = OBJECTS * 3 * VALUE_BYTES
    assert all(size < max(SMALL_FILE, largest / 4) for size in sizes), sizes
    assert sizes[-1] < SMALL_FILE
    assert memory[-1] - memory[0] < max(0.15 * memory[0], 30 * MEGABYTE)
