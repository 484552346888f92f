"""Stages the state in shared memory while the next step computes, so that it can be read after its worker has died.

Two files alternate, so that one is always complete. State on the CPU does not change between two updates: only an
update that comes before the end of the copy waits for it. State on a GPU is first copied within the device, in the
order of its stream, so that no update waits for the slower copy to the host.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import stat
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from torchyard.elastic.checkpoint.staged import COPY_THREADS, FORMAT, HEAD, StagedState, read_staged, tensor_offsets
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.world.state import Snapshot

TOUCH_CHUNK = 64 << 20
WAIT_FOR_OWNER = 10.0
"""A process with much memory takes seconds to end, and its GPU may write until then."""


class _StagingFile:
    """One file: mapped once, its pages touched before they are needed, and pinned if a GPU writes to them.

    Its worker holds a lock on it for as long as it lives; the replacement of the worker inherits the file.
    """

    def __init__(self, path: Path, capacity: int, *, pinned: bool, owner: str) -> None:
        self.path = path
        self._owner = owner
        inherited = _inherit(path, capacity)
        self._descriptor = inherited if inherited is not None else _create(path, capacity)
        self.capacity = os.fstat(self._descriptor).st_size
        self._map = mmap.mmap(self._descriptor, self.capacity)
        self._bytes: Any = torch.frombuffer(self._map, dtype=torch.uint8)
        if inherited is None:
            with ThreadPoolExecutor(COPY_THREADS) as pool:
                list(pool.map(torch.Tensor.zero_, torch.split(self._bytes, TOUCH_CHUNK)))
        if pinned:
            # One registration: CUDA refuses a copy that crosses from one registration into another.
            cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            torch.cuda.check_error(cudart.cudaHostRegister(self._bytes.data_ptr(), self.capacity, 0))
        elif inherited is not None:
            self._bytes[:: mmap.PAGESIZE].max()  # map the existing pages into this process

    def write_head(self, step: int, sizes: tuple[int, int], *, complete: bool) -> None:
        head = {"format": FORMAT, "owner": self._owner, "step": step, "header": sizes[0], "body": sizes[1]}
        self._map[:HEAD] = json.dumps(head | {"whole": complete}).encode().ljust(HEAD, b" ")

    def fill(self, step: int, snapshot: Snapshot, header: bytes) -> None:
        starts, end = tensor_offsets(snapshot.tensors, HEAD + len(header))
        sizes = (len(header), end - HEAD - len(header))
        self.write_head(step, sizes, complete=False)
        self._map[HEAD : HEAD + len(header)] = header
        for start, tensor in zip(starts, snapshot.tensors, strict=True):
            size = tensor.numel() * tensor.element_size()
            if size:
                flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
                self._bytes[start : start + size].copy_(flat, non_blocking=tensor.is_cuda)
        if _on_gpu(snapshot):
            torch.cuda.current_stream().synchronize()
        self.write_head(step, sizes, complete=True)

    def close(self) -> None:
        """Release the file for the next worker."""
        os.close(self._descriptor)


def _inherit(path: Path, capacity: int) -> int | None:
    """Open the file of the previous worker, if it is large enough and that worker has ended."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return None
    deadline = time.monotonic() + WAIT_FOR_OWNER
    status = os.fstat(descriptor)
    own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1
    while own and os.fstat(descriptor).st_size >= capacity and time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return descriptor
    os.close(descriptor)
    return None


def _create(path: Path, capacity: int) -> int:
    path.unlink(missing_ok=True)  # a process that reads the earlier file keeps it
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, capacity)  # a hole that cannot be filled later would kill the process
    except OSError as error:
        os.close(descriptor)
        path.unlink()
        raise ElasticError(
            "NoSharedMemory",
            f"{path.parent} has no space for a state of {capacity >> 20} MiB: {error.strerror}",
            hint="enlarge it (in a pod: mount an emptyDir of medium Memory at /dev/shm), or train without snapshots",
        ) from error
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


class _DeviceCopy:
    """A second copy of the state on the GPU, allocated once, and the stream that copies it to the host."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors = [torch.empty_like(tensor) for tensor in tensors]
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def fits(self, tensors: list[torch.Tensor]) -> bool:
        types = [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors]
        return types == [(tensor.shape, tensor.dtype, tensor.device) for tensor in self._tensors]

    def take(self, snapshot: Snapshot) -> Snapshot:
        """Copy a snapshot within the GPU. The stream of the training orders it before the next update."""
        torch._foreach_copy_(self._tensors, snapshot.tensors)
        self.stream.wait_stream(torch.cuda.current_stream())
        return Snapshot(snapshot.skeleton, self._tensors)


class Stager:
    """Stages the state of one worker, as `AsyncStager` of torch does: two files, and one thread that fills them.

    Args:
        folder: a directory in shared memory.
        name: the prefix of the files.
        owner: the job; see `owner_of`.

    Attributes:
        before_overwrite: called in the thread with the path of a file before it is overwritten; may wait.
    """

    def __init__(self, folder: Path, name: str, *, owner: str = "") -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._owner = owner
        self._paths = [folder / f"{name}.{index}.state" for index in (0, 1)]
        self._files: list[_StagingFile | None] = [None, None]
        newest = max(map(self._read, self._paths), key=lambda staged: staged.step if staged else -1)
        self._current = self._paths.index(newest.path) if newest else 0  # the other file is written first
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="elastic-copy")
        self._staged: Future[Path] | None = None
        self._tasks: list[Future[None]] = []
        self._device_copy: _DeviceCopy | None = None
        self.before_overwrite: Callable[[str], None] = lambda path: None

    def _read(self, path: Path) -> StagedState | None:
        return read_staged(path, self._owner)

    def prepare(self, snapshot: Snapshot) -> None:
        """Allocate the files for states of this size, before the first is staged. A complete file stays."""
        capacity, pinned = _file_size(snapshot, snapshot.header()), _on_gpu(snapshot)

        def work() -> None:
            for index in (1 - self._current, self._current):
                if index != self._current or self._read(self._paths[index]) is None:
                    self._file(index, capacity, pinned=pinned)

        self._tasks.append(self._thread.submit(work))

    def stage(self, step: int, snapshot: Snapshot, on_complete: Callable[[Path], None] | None = None) -> None:
        """Start to copy a snapshot. Call `synchronize_staging` before anything changes its tensors.

        Args:
            step: the step of the snapshot.
            snapshot: the state.
            on_complete: called in the thread with the path of the complete file.
        """
        self._wait_for_staging()
        self._raise_errors([task for task in self._tasks if task.done()])
        header = snapshot.header()
        self._device_copy = self._device_copy_for(snapshot)
        source = self._device_copy.take(snapshot) if self._device_copy is not None else snapshot
        staged = self._staged = self._thread.submit(self._copy, step, source, header, self._device_copy)
        if on_complete is not None:
            self._tasks.append(self._thread.submit(lambda: on_complete(staged.result())))

    def _copy(self, step: int, source: Snapshot, header: bytes, device_copy: _DeviceCopy | None) -> Path:
        self._current = 1 - self._current
        with torch.cuda.stream(device_copy.stream) if device_copy is not None else nullcontext():
            self.before_overwrite(str(self._paths[self._current]))
            file = self._file(self._current, _file_size(source, header), pinned=_on_gpu(source))
            file.fill(step, source, header)
        return file.path

    def _device_copy_for(self, snapshot: Snapshot) -> _DeviceCopy | None:
        """Return the copy on the GPU; None without a GPU or enough memory on it: then updates wait for the staging."""
        if not _on_gpu(snapshot):
            return None
        if self._device_copy is not None and self._device_copy.fits(snapshot.tensors):
            return self._device_copy
        try:
            return _DeviceCopy(snapshot.tensors)
        except torch.cuda.OutOfMemoryError:
            return None

    def _file(self, index: int, capacity: int, *, pinned: bool) -> _StagingFile:
        file = self._files[index]
        if file is not None and file.capacity < capacity:
            file.close()
            file = None
        if file is None:
            file = self._files[index] = _StagingFile(
                self._paths[index], capacity + HEAD, pinned=pinned, owner=self._owner
            )
        return file

    @property
    def staging(self) -> bool:
        return self._staged is not None and not self._staged.done()

    def synchronize_staging(self) -> None:
        """Wait until the tensors may change: no copy reads them any more."""
        if self._device_copy is None:
            self._wait_for_staging()

    def _wait_for_staging(self) -> None:
        staged, self._staged = self._staged, None
        if staged is not None:
            staged.result()

    def wait(self) -> None:
        """Wait for all work."""
        self._wait_for_staging()
        self._raise_errors(self._tasks)

    def _raise_errors(self, tasks: list[Future[None]]) -> None:
        """Forget these tasks, and raise the error of one that failed."""
        self._tasks = [task for task in self._tasks if task not in tasks]
        for task in tasks:
            task.result()

    def close(self) -> None:
        try:
            self.wait()
        finally:
            self._thread.shutdown()
        for file in self._files:
            if file is not None:
                file.close()
        self._files = [None, None]


def _file_size(snapshot: Snapshot, header: bytes) -> int:
    return tensor_offsets(snapshot.tensors, HEAD + len(header))[1]


def _on_gpu(snapshot: Snapshot) -> bool:
    return any(tensor.is_cuda for tensor in snapshot.tensors)
