"""Copies of a state in shared memory, as their readers see them: what the file looks like, and how it is read.

A file is a head (which step, and whether the copy is whole), the header of a snapshot, and its tensors. Writes nothing.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.world.state import Snapshot, raw_bytes

HEAD = 4096
ALIGNED = 64
"""Every tensor begins at a multiple of this, so that it can be read in place."""
HANDS = max(1, min(8, (os.cpu_count() or 1) // 2))
"""Threads that move memory: one alone reaches a fraction of what it can do."""
PIECE = 8 << 20
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
class StagedState:
    """A whole copy: where it lies, and of which step."""

    path: Path
    step: int
    header_size: int
    body_size: int

    def load(self, gpu: torch.device | None = None) -> Snapshot:
        """The state, with all that is large in it on the GPU if one is given. Its writer may use the file again."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            header = torch.empty(self.header_size, dtype=torch.uint8)
            _read(handle, header, HEAD)
            told = Snapshot.announced(bytes(raw_bytes(header)))
            starts, _ = places(told.tensors, HEAD + self.header_size)
            held, far = [], []
            for start, like in zip(starts, told.tensors, strict=True):
                remote = gpu is not None and like.numel() * like.element_size() > SMALL
                made = torch.empty_like(like, device=gpu if remote else "cpu")
                held.append(made)
                if remote:
                    far.append((start, _flat(made)))
                else:
                    _read(handle, _flat(made), start)
            if far:
                _feed(handle, far)
        finally:
            os.close(handle)
        return Snapshot(told.skeleton, held)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)


def _read(handle: int, into: torch.Tensor, start: int) -> None:
    """Fill a tensor of bytes. Reading costs less than mapping: every page of a mapping is a fault."""
    for part in torch.split(into, 1 << 30):
        if part.numel() and os.preadv(handle, [raw_bytes(part)], start) != part.numel():
            raise ElasticError("CopyLost", "a copy in shared memory was cut short while it was read")
        start += part.numel()


class _PinnedPiece:
    """Host memory that the GPU reads, and the event that marks the end of that read."""

    def __init__(self) -> None:
        self.memory = torch.empty(PIECE, dtype=torch.uint8, pin_memory=True)
        self.sent = torch.cuda.Event()  # type: ignore[no-untyped-call]


def _feed(handle: int, targets: list[tuple[int, torch.Tensor]]) -> None:
    """Bring bytes of a file to tensors on a GPU: each thread reads one piece while its last is on the way there."""
    pieces = [
        (start + at, part)
        for start, target in targets
        for at, part in zip(range(0, target.numel(), PIECE), torch.split(target, PIECE), strict=True)
    ]

    def work(hand: int) -> None:
        pieces_in_turn = [_PinnedPiece(), _PinnedPiece()]
        stream = torch.cuda.Stream(targets[0][1].device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            for turn, (start, target) in enumerate(pieces[hand::HANDS]):
                piece = pieces_in_turn[turn % 2]
                piece.sent.synchronize()
                _read(handle, piece.memory[: target.numel()], start)
                target.copy_(piece.memory[: target.numel()], non_blocking=True)
                piece.sent.record()
            torch.cuda.current_stream().synchronize()

    torch.cuda.current_stream().synchronize()  # the targets' memory may still have work of its last owner before it
    with ThreadPoolExecutor(HANDS) as pool:
        list(pool.map(work, range(HANDS)))


def read_copy(path: Path) -> StagedState | None:
    """None unless the file is whole: its writer may have died in the middle."""
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(HEAD).rstrip(b"\0 "))
        return StagedState(path, told["step"], told["header"], told["body"]) if told["whole"] else None
    except (OSError, ValueError, KeyError):
        return None


def newest_copy(folder: Path) -> StagedState | None:
    copies = [copy for copy in map(read_copy, folder.glob("*.state")) if copy is not None]
    return max(copies, key=lambda copy: copy.step, default=None)
