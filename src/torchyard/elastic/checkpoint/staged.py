"""A state staged in shared memory, as its readers see it: the format of the file, and how to load it.

A file has a head (the step, and whether the file is complete), the header of a snapshot, and its tensors. This module
writes nothing.
"""

from __future__ import annotations

import hmac
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchyard.elastic.checkpoint.files import open_regular
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.world.state import Snapshot, raw_bytes
from torchyard.elastic.world.state_header import LARGEST_HEADER, bad_state

HEAD = 4096
FORMAT = "torchyard-staged/2"
ALIGNMENT = 64
"""The offset of every tensor is a multiple of this, so that it can be read in place."""
COPY_THREADS = max(1, min(8, (os.cpu_count() or 1) // 2))
"""Threads that copy memory: a single thread reaches only a fraction of the bandwidth."""
PIECE = 8 << 20
MIN_GPU_BYTES = 1 << 16
"""Smaller tensors, such as step counters, stay on the CPU even if the model is on a GPU."""


def tensor_offsets(tensors: list[torch.Tensor], start: int) -> tuple[list[int], int]:
    """Return the offset of each tensor in a file whose body begins at `start`, and the end of the body."""
    offsets, offset = [], start
    for tensor in tensors:
        offset = -(-offset // ALIGNMENT) * ALIGNMENT
        offsets.append(offset)
        offset += tensor.numel() * tensor.element_size()
    return offsets, offset


@dataclass(frozen=True, slots=True)
class StagedState:
    """A complete file with the state of one step."""

    path: Path
    step: int
    header_size: int
    body_size: int
    owner: str

    def load(self, gpu: torch.device | None = None) -> Snapshot:
        """Copy the state out of the file, which its writer may reuse.

        Args:
            gpu: where to put large tensors; None puts all on the CPU.
        """
        handle = open_regular(self.path)
        try:
            size = os.fstat(handle).st_size
            if HEAD + self.header_size > min(size, LARGEST_HEADER):
                raise bad_state(str(self.path), f"its header of {self.header_size} bytes does not fit")
            header = torch.empty(self.header_size, dtype=torch.uint8)
            _read(handle, header, HEAD)
            description = Snapshot.without_data(bytes(raw_bytes(header)), source=str(self.path))
            starts, end = tensor_offsets(description.tensors, HEAD + self.header_size)
            if end > size:
                raise bad_state(str(self.path), f"its tensors end at {end}, but the file has {size} bytes")
            tensors, on_gpu = [], []
            for start, like in zip(starts, description.tensors, strict=True):
                to_gpu = gpu is not None and like.numel() * like.element_size() > MIN_GPU_BYTES
                tensor = torch.empty_like(like, device=gpu if to_gpu else "cpu")
                tensors.append(tensor)
                if to_gpu:
                    on_gpu.append((start, _as_bytes(tensor)))
                else:
                    _read(handle, _as_bytes(tensor), start)
            if on_gpu:
                _copy_to_gpu(handle, on_gpu)
        finally:
            os.close(handle)
        return Snapshot(description.skeleton, tensors)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)


def _read(handle: int, into: torch.Tensor, start: int) -> None:
    """Fill a tensor of bytes. Reading is faster than mapping, where every page causes a fault."""
    for part in torch.split(into, 1 << 30):
        if part.numel() and os.preadv(handle, [raw_bytes(part)], start) != part.numel():
            raise ElasticError("CopyLost", "a staged state in shared memory was truncated while it was read")
        start += part.numel()


class _PinnedBuffer:
    """Host memory that the GPU reads, and the event that marks the end of that read."""

    def __init__(self) -> None:
        self.memory = torch.empty(PIECE, dtype=torch.uint8, pin_memory=True)
        self.sent = torch.cuda.Event()  # type: ignore[no-untyped-call]


def _copy_to_gpu(handle: int, targets: list[tuple[int, torch.Tensor]]) -> None:
    """Copy parts of a file to tensors on a GPU: each thread reads one piece while the GPU reads its last."""
    pieces = [
        (start + offset, part)
        for start, target in targets
        for offset, part in zip(range(0, target.numel(), PIECE), torch.split(target, PIECE), strict=True)
    ]

    def work(thread: int) -> None:
        buffers = [_PinnedBuffer(), _PinnedBuffer()]
        stream = torch.cuda.Stream(targets[0][1].device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            for number, (start, target) in enumerate(pieces[thread::COPY_THREADS]):
                buffer = buffers[number % 2]
                buffer.sent.synchronize()
                _read(handle, buffer.memory[: target.numel()], start)
                target.copy_(buffer.memory[: target.numel()], non_blocking=True)
                buffer.sent.record()
            torch.cuda.current_stream().synchronize()

    torch.cuda.current_stream().synchronize()  # the targets' memory may still be in use by its last owner
    with ThreadPoolExecutor(COPY_THREADS) as pool:
        list(pool.map(work, range(COPY_THREADS)))


def read_staged(path: Path, owner: str = "") -> StagedState | None:
    """Return the state in a file, or None if the file is not complete (its writer may have died) or of another job.

    Args:
        path: the file.
        owner: the job that must have staged the state; see `owner_of`.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None  # /dev/shm belongs to all users of the machine
            head = json.loads(file.read(HEAD).rstrip(b"\0 "))
        if head["format"] != FORMAT or head["owner"] != owner or head["whole"] is not True:
            return None
        step, header, body = head["step"], head["header"], head["body"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ElasticError):
        return None
    if not all(type(size) is int and 0 <= size < 1 << 63 for size in (step, header, body)):
        return None
    return StagedState(path, step, header, body, owner)


def owner_of(token: str, identity: dict[str, Any] | None = None) -> str:
    """Return what identifies a job in the head of its staged states: derived from its secret, but not the secret.

    Args:
        token: the secret of the job.
        identity: the settings of the training: a state of a training with other settings is not its state.
    """
    content = b"staged state" + json.dumps(identity or {}, sort_keys=True).encode()
    return hmac.new(token.encode(), content, "sha256").hexdigest() if token or identity else ""


def newest_staged(folder: Path, owner: str = "") -> StagedState | None:
    """Return the newest state in a directory, of any worker of the job."""
    complete = [staged for path in folder.glob("*.state") if (staged := read_staged(path, owner)) is not None]
    return max(complete, key=lambda staged: staged.step, default=None)
