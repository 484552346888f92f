"""A copy of the state in shared memory: taken while the next step computes, readable after its worker is dead.

Two files take turns, so that one is always whole. State on the CPU does not change between an update and the next: the
copy has that long, and only an update that comes sooner waits for it. State on a GPU is first copied within the device,
in the order of its stream, so that no update waits for the slow way to the host.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from torchyard.elastic.checkpoint.staged import HANDS, HEAD, places, read_copy
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.world.state import Snapshot

TOUCHED_AT_ONCE = 64 << 20
WAIT_FOR_THE_DEAD = 10.0
"""A process with much memory takes seconds to end, and its GPU may write until it has."""


class _StagingFile:
    """One file: mapped once, its pages touched before they are needed, and pinned where a GPU writes to them.

    It is held by a lock for as long as its worker lives; the one that gets its place next takes the file over.
    """

    def __init__(self, path: Path, room: int, *, pinned: bool) -> None:
        self.path = path
        inherited = _inherit(path, room)
        self._handle = inherited if inherited is not None else _create(path, room)
        self.room = os.fstat(self._handle).st_size
        self._map = mmap.mmap(self._handle, self.room)
        self._bytes: Any = torch.frombuffer(self._map, dtype=torch.uint8)
        if inherited is None:
            with ThreadPoolExecutor(HANDS) as pool:
                list(pool.map(torch.Tensor.zero_, torch.split(self._bytes, TOUCHED_AT_ONCE)))
        if pinned:
            # In one piece: a copy that crosses from one registration into the next is refused.
            cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            torch.cuda.check_error(cudart.cudaHostRegister(self._bytes.data_ptr(), self.room, 0))
        elif inherited is not None:
            self._bytes[:: mmap.PAGESIZE].max()  # its pages are there, but not yet in this process

    def head(self, step: int, sizes: tuple[int, int], *, whole: bool) -> None:
        told = json.dumps({"step": step, "header": sizes[0], "body": sizes[1], "whole": whole}).encode()
        self._map[:HEAD] = told.ljust(HEAD, b" ")

    def fill(self, step: int, snapshot: Snapshot, header: bytes) -> None:
        starts, end = places(snapshot.tensors, HEAD + len(header))
        sizes = (len(header), end - HEAD - len(header))
        self.head(step, sizes, whole=False)
        self._map[HEAD : HEAD + len(header)] = header
        for start, tensor in zip(starts, snapshot.tensors, strict=True):
            size = tensor.numel() * tensor.element_size()
            if size:
                flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
                self._bytes[start : start + size].copy_(flat, non_blocking=tensor.is_cuda)
        if _on_gpu(snapshot):
            torch.cuda.current_stream().synchronize()
        self.head(step, sizes, whole=True)

    def close(self) -> None:
        """Leave the file to whoever comes next."""
        os.close(self._handle)


def _inherit(path: Path, room: int) -> int | None:
    """The file of the worker that had this place before, if it is large enough and that worker is gone."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    give_up = time.monotonic() + WAIT_FOR_THE_DEAD
    while os.fstat(handle).st_size >= room and time.monotonic() < give_up:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return handle
    os.close(handle)
    return None


def _create(path: Path, room: int) -> int:
    path.unlink(missing_ok=True)  # whoever reads an earlier file of this name keeps it
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(handle, 0, room)  # a hole that cannot be filled later would end the process
    except OSError as error:
        os.close(handle)
        path.unlink()
        raise ElasticError(
            "NoSharedMemory",
            f"{path.parent} has no room for a copy of {room >> 20} MiB: {error.strerror}",
            hint="enlarge it (in a pod: an emptyDir of medium Memory at /dev/shm), or train without snapshots",
        ) from error
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


class _DeviceCopy:
    """A second copy of the state on the GPU, made once, and the stream on which it goes to the host."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._held = [torch.empty_like(tensor) for tensor in tensors]
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def fits(self, tensors: list[torch.Tensor]) -> bool:
        kinds = [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors]
        return kinds == [(tensor.shape, tensor.dtype, tensor.device) for tensor in self._held]

    def take(self, snapshot: Snapshot) -> Snapshot:
        """Ordered before the next update by the training's own stream."""
        torch._foreach_copy_(self._held, snapshot.tensors)
        self.stream.wait_stream(torch.cuda.current_stream())
        return Snapshot(snapshot.skeleton, self._held)


class Stager:
    """Both files and the one thread that makes and fills them, in the order it was asked to."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._paths = [folder / f"{name}.{turn}.state" for turn in (0, 1)]
        self._slots: list[_StagingFile | None] = [None, None]
        newest = max(map(read_copy, self._paths), key=lambda copy: copy.step if copy else -1)
        self._turn = self._paths.index(newest.path) if newest else 0  # the other is written first
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="elastic-copy")
        self._copied: Future[Path] | None = None
        self._others: list[Future[None]] = []
        self._shadow: _DeviceCopy | None = None

    def prepare(self, snapshot: Snapshot) -> None:
        """Make room for copies of such a state, before the first is wanted. A whole copy that is there stays."""
        room, pinned = _room(snapshot, snapshot.header()), _on_gpu(snapshot)

        def work() -> None:
            for turn in (1 - self._turn, self._turn):
                if turn != self._turn or read_copy(self._paths[turn]) is None:
                    self._slot(turn, room, pinned=pinned)

        self._others.append(self._aside.submit(work))

    def begin(self, step: int, snapshot: Snapshot, then: Callable[[Path], None] | None = None) -> None:
        """Start to copy, and do `then` with the file when it is whole.

        `before_change` must be called before anything changes the tensors.
        """
        self._wait_for_copy()
        self._hear([other for other in self._others if other.done()])
        header = snapshot.header()
        self._shadow = self._shadow_for(snapshot)
        taken = self._shadow.take(snapshot) if self._shadow is not None else snapshot
        copied = self._copied = self._aside.submit(self._copy, step, taken, header, self._shadow)
        if then is not None:
            self._others.append(self._aside.submit(lambda: then(copied.result())))

    def _copy(self, step: int, taken: Snapshot, header: bytes, shadow: _DeviceCopy | None) -> Path:
        self._turn = 1 - self._turn
        with torch.cuda.stream(shadow.stream) if shadow is not None else nullcontext():
            slot = self._slot(self._turn, _room(taken, header), pinned=_on_gpu(taken))
            slot.fill(step, taken, header)
        return slot.path

    def _shadow_for(self, snapshot: Snapshot) -> _DeviceCopy | None:
        """None where there is no GPU, or no room for a second copy on it: then updates wait for the copy."""
        if not _on_gpu(snapshot):
            return None
        if self._shadow is not None and self._shadow.fits(snapshot.tensors):
            return self._shadow
        try:
            return _DeviceCopy(snapshot.tensors)
        except torch.cuda.OutOfMemoryError:
            return None

    def _slot(self, turn: int, room: int, *, pinned: bool) -> _StagingFile:
        held = self._slots[turn]
        if held is not None and held.room < room:
            held.close()
            held = None
        if held is None:
            held = self._slots[turn] = _StagingFile(self._paths[turn], room + HEAD, pinned=pinned)
        return held

    @property
    def copying(self) -> bool:
        return self._copied is not None and not self._copied.done()

    def before_change(self) -> None:
        """The tensors are about to change: a copy that still reads them must be whole."""
        if self._shadow is None:
            self._wait_for_copy()

    def _wait_for_copy(self) -> None:
        copied, self._copied = self._copied, None
        if copied is not None:
            copied.result()

    def settle(self) -> None:
        """Until all that was asked for is done."""
        self._wait_for_copy()
        self._hear(self._others)

    def _hear(self, others: list[Future[None]]) -> None:
        self._others = [other for other in self._others if other not in others]
        for other in others:
            other.result()

    def close(self) -> None:
        try:
            self.settle()
        finally:
            self._aside.shutdown()
        for slot in self._slots:
            if slot is not None:
                slot.close()
        self._slots = [None, None]


def _room(snapshot: Snapshot, header: bytes) -> int:
    return places(snapshot.tensors, HEAD + len(header))[1]


def _on_gpu(snapshot: Snapshot) -> bool:
    return any(tensor.is_cuda for tensor in snapshot.tensors)
