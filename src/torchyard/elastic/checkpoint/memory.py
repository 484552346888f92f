"""A copy of the state in shared memory: taken while the next step computes, readable after its worker is dead.

Two files take turns, so that one is always whole. The state does not change between an update and the next: the copy
has that long, and only an update that comes sooner waits for it.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchyard.elastic.worker.runtime import unpack
from torchyard.elastic.worker.state import Snapshot

HEAD = 4096


@dataclass(frozen=True, slots=True)
class Copy:
    """A whole copy: where it lies, and of which step."""

    path: Path
    step: int
    header_size: int
    body_size: int

    def load(self) -> Snapshot:
        whole = torch.from_file(str(self.path), shared=False, size=self.path.stat().st_size, dtype=torch.uint8)
        header = bytes(whole[HEAD : HEAD + self.header_size].tolist())
        snapshot = Snapshot.empty_like(header)
        unpack(whole[HEAD + self.header_size :][: self.body_size], snapshot)
        return snapshot


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
    """One file: mapped once, its pages touched before they are needed."""

    def __init__(self, path: Path, room: int) -> None:
        self.path = path
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(handle, room)
            self._map = mmap.mmap(handle, room)
        finally:
            os.close(handle)
        self.room = room
        self._bytes: Any = torch.frombuffer(self._map, dtype=torch.uint8)
        self._bytes.zero_()

    def head(self, step: int, sizes: tuple[int, int], *, whole: bool) -> None:
        told = json.dumps({"step": step, "header": sizes[0], "body": sizes[1], "whole": whole}).encode()
        self._map[:HEAD] = told.ljust(HEAD, b" ")

    def fill(self, step: int, snapshot: Snapshot, header: bytes) -> None:
        sizes = (len(header), snapshot.nbytes)
        self.head(step, sizes, whole=False)
        self._map[HEAD : HEAD + len(header)] = header
        at = HEAD + len(header)
        for tensor in snapshot.tensors:
            size = tensor.numel() * tensor.element_size()
            if size:
                self._bytes[at : at + size].copy_(tensor.detach().contiguous().view(-1).view(torch.uint8))
            at += size
        self.head(step, sizes, whole=True)


class Memory:
    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._paths = [folder / f"{name}.{turn}.state" for turn in (0, 1)]
        self._slots: list[_Slot | None] = [None, None]
        self._turn = 0
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def begin(self, step: int, snapshot: Snapshot, then: Callable[[Path], None] | None = None) -> None:
        """Start to copy, and do `then` with the file when it is whole.

        `settle` must be called before anything changes the tensors.
        """
        self.settle()
        header = snapshot.header()
        slot = self._slot(HEAD + len(header) + snapshot.nbytes)

        def work() -> None:
            try:
                slot.fill(step, snapshot, header)
                if then is not None:
                    then(slot.path)
            except BaseException as failure:  # raised where the training thread waits for the copy
                self._failure = failure

        self._thread = threading.Thread(target=work, name="elastic-copy")
        self._thread.start()

    def _slot(self, room: int) -> _Slot:
        self._turn = 1 - self._turn
        held = self._slots[self._turn]
        if held is None or held.room < room:
            held = self._slots[self._turn] = _Slot(self._paths[self._turn], room + HEAD)
        return held

    def settle(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
