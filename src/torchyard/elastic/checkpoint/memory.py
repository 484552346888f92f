"""A copy of the state in shared memory: taken while the next step computes, readable after its worker is dead.

Two files take turns, so that one is always whole. State on the CPU does not change between an update and the next: the
copy has that long, and only an update that comes sooner waits for it. State on a GPU is first copied within the device,
in the order of its stream, so that no update waits for the slow way to the host.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.worker.state import Snapshot

HEAD = 4096
ALIGNED = 64
"""Every tensor begins at a multiple of this, so that it can be read in place."""
FEEDERS = 8
FED_AT_ONCE = 64 << 20
SMALL = 1 << 16
"""Step counters and the like stay on the CPU even when a model does not."""


def places(tensors: list[torch.Tensor], start: int) -> tuple[list[int], int]:
    """Where each tensor begins in a file whose body begins at `start`, and where the body ends."""
    found, at = [], start
    for tensor in tensors:
        at = -(-at // ALIGNED) * ALIGNED
        found.append(at)
        at += tensor.numel() * tensor.element_size()
    return found, at


@dataclass(frozen=True, slots=True)
class Copy:
    """A whole copy: where it lies, and of which step."""

    path: Path
    step: int
    header_size: int
    body_size: int

    def load(self, *, in_place: bool = False) -> Snapshot:
        """The state; in place if all that is large in it goes to a GPU at once: its writer may use the file again."""
        whole = torch.from_file(str(self.path), shared=False, size=self.path.stat().st_size, dtype=torch.uint8)
        told = Snapshot.announced(bytes(whole[HEAD : HEAD + self.header_size].numpy()))
        starts, _ = places(told.tensors, HEAD + self.header_size)
        held = []
        for start, like in zip(starts, told.tensors, strict=True):
            size = like.numel() * like.element_size()
            found = whole[start : start + size].view(like.dtype).view(like.shape)
            held.append(found if in_place and size > SMALL else found.clone())
        return Snapshot(told.skeleton, held)


def onto(snapshot: Snapshot, device: torch.device) -> Snapshot:
    """Its large tensors on a device. Several threads feed it: one reads ordinary memory at a fraction of its speed."""
    jobs: list[tuple[torch.Tensor, torch.Tensor]] = []
    moved: list[torch.Tensor] = []
    for tensor in snapshot.tensors:
        if tensor.numel() * tensor.element_size() <= SMALL:
            moved.append(tensor)
            continue
        target = torch.empty_like(tensor, device=device)
        moved.append(target)
        size = max(1, FED_AT_ONCE // tensor.element_size())
        jobs += zip(target.view(-1).split(size), tensor.view(-1).split(size), strict=True)
    with ThreadPoolExecutor(FEEDERS) as pool:
        list(pool.map(lambda job: job[0].copy_(job[1]), jobs))
    return Snapshot(snapshot.skeleton, moved)


def read_copy(path: Path) -> Copy | None:
    """None unless the file is whole: its writer may have died in the middle."""
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(HEAD).rstrip(b"\0 "))
        return Copy(path, told["step"], told["header"], told["body"]) if told["whole"] else None
    except (OSError, ValueError, KeyError):
        return None


def newest_copy(folder: Path) -> Copy | None:
    copies = [copy for copy in map(read_copy, folder.glob("*.state")) if copy is not None]
    return max(copies, key=lambda copy: copy.step, default=None)


class _Slot:
    """One file: mapped once, its pages touched before they are needed, and pinned where a GPU writes to them."""

    def __init__(self, path: Path, room: int, *, pinned: bool) -> None:
        self.path = path
        path.unlink(missing_ok=True)  # whoever reads an earlier file of this name keeps it
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(handle, 0, room)  # a hole that cannot be filled later would end the process
            self._map = mmap.mmap(handle, room)
        except OSError as error:
            path.unlink()
            raise ElasticError(
                "NoSharedMemory",
                f"{path.parent} has no room for a copy of {room >> 20} MiB: {error.strerror}",
                hint="enlarge it (in a pod: an emptyDir of medium Memory at /dev/shm), or train without snapshots",
            ) from error
        finally:
            os.close(handle)
        self.room = room
        self._bytes: Any = torch.frombuffer(self._map, dtype=torch.uint8)
        self._bytes.zero_()
        if pinned:
            # In one piece: a copy that crosses from one registration into the next is refused.
            torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(self._bytes.data_ptr(), room, 0))

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
        if any(tensor.is_cuda for tensor in snapshot.tensors):
            torch.cuda.current_stream().synchronize()
        self.head(step, sizes, whole=True)


class _Shadow:
    """A second copy of the state on the GPU, made once, and the stream on which it goes to the host."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._held = [torch.empty_like(tensor) for tensor in tensors]
        self.stream = torch.cuda.Stream()

    def fits(self, tensors: list[torch.Tensor]) -> bool:
        kinds = [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors]
        return kinds == [(tensor.shape, tensor.dtype, tensor.device) for tensor in self._held]

    def take(self, snapshot: Snapshot) -> Snapshot:
        """Ordered before the next update by the training's own stream."""
        torch._foreach_copy_(self._held, snapshot.tensors)
        self.stream.wait_stream(torch.cuda.current_stream())
        return Snapshot(snapshot.skeleton, self._held)


class Memory:
    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._paths = [folder / f"{name}.{turn}.state" for turn in (0, 1)]
        self._slots: list[_Slot | None] = [None, None]
        self._turn = 0
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._shadow: _Shadow | None = None

    def begin(self, step: int, snapshot: Snapshot, then: Callable[[Path], None] | None = None) -> None:
        """Start to copy, and do `then` with the file when it is whole.

        `before_change` must be called before anything changes the tensors.
        """
        self.settle()
        header = snapshot.header()
        self._shadow = self._shadow_for(snapshot.tensors)
        shadow, taken = self._shadow, self._shadow.take(snapshot) if self._shadow is not None else snapshot

        def work() -> None:
            try:
                with torch.cuda.stream(shadow.stream) if shadow is not None else nullcontext():
                    slot = self._slot(places(taken.tensors, HEAD + len(header))[1], pinned=shadow is not None)
                    slot.fill(step, taken, header)
                if then is not None:
                    then(slot.path)
            except BaseException as failure:  # raised where the training thread waits for the copy
                self._failure = failure

        self._thread = threading.Thread(target=work, name="elastic-copy")
        self._thread.start()

    def _shadow_for(self, tensors: list[torch.Tensor]) -> _Shadow | None:
        """None where there is no GPU, or no room for a second copy on it: then updates wait for the copy."""
        if not any(tensor.is_cuda for tensor in tensors):
            return None
        if self._shadow is not None and self._shadow.fits(tensors):
            return self._shadow
        try:
            return _Shadow(tensors)
        except torch.cuda.OutOfMemoryError:
            return None

    def _slot(self, room: int, *, pinned: bool) -> _Slot:
        self._turn = 1 - self._turn
        held = self._slots[self._turn]
        if held is None or held.room < room:
            held = self._slots[self._turn] = _Slot(self._paths[self._turn], room + HEAD, pinned=pinned)
        return held

    @property
    def copying(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def before_change(self) -> None:
        """The tensors are about to change: a copy that still reads them must be whole."""
        if self._shadow is None:
            self.settle()

    def settle(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
