"""Assigns micro-batches to a program's batches, in order, for its own process and for its DataLoader's workers.

A DataLoader loads ahead, so a lease can outlive its world. Then its batch is kept if the micro-batch still belongs to
this worker, and dropped otherwise. It knows nothing of models.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from torchyard.elastic.sampler import StepSampler


@dataclass(frozen=True, slots=True)
class BatchLease:
    step: int
    micro: int


class BatchLeases:
    """The micro-batches that the program has fetched but not completed.

    Args:
        sampler: which records a micro-batch has.
        position: returns the last applied step and this worker's block of micro-batches.
    """

    def __init__(self, sampler: StepSampler, position: Callable[[], tuple[int, range]]) -> None:
        self._sampler = sampler
        self._position = position
        self._changed = threading.Condition()
        self._leased: dict[int, BatchLease] = {}
        self._dropped = 0

    def take(self, number: int) -> BatchLease | None:
        """Lease a micro-batch for the program's batch `number`; None at the end. Waits while all are leased."""
        with self._changed:
            while number not in self._leased:
                applied, block = self._position()
                if applied >= self._sampler.steps:
                    return None
                lease = self._next(applied, block)
                if lease is not None:
                    self._leased[number] = lease
                    break
                self._changed.wait(0.2)
            return self._leased[number]

    def _next(self, applied: int, block: range) -> BatchLease | None:
        leased = set(self._leased.values())
        for step in range(applied + 1, self._sampler.steps + 1):
            for micro in block:
                lease = BatchLease(step, micro)
                if lease not in leased and self._sampler.micro_span(step, micro).records:
                    return lease
        return None

    def get(self, number: int) -> BatchLease | None:
        with self._changed:
            return self._leased.get(number)

    def release(self, applied: int, block: range) -> None:
        """Release leases that are complete or belong to another worker, so that others can be leased."""
        with self._changed:
            keep = {n: lease for n, lease in self._leased.items() if lease.step > applied and lease.micro in block}
            self._leased = keep
            self._changed.notify_all()


class LeaseServer:
    """Serves leases to the DataLoader's worker processes, which do not share the training process's memory."""

    def __init__(self, records: Callable[[int], list[int] | None]) -> None:
        self._records = records
        self.path = str(Path(mkdtemp(prefix="torchyard-leases-")) / "socket")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen(64)
        threading.Thread(target=self._accept, name="elastic-leases", daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while request := connection.recv(1 << 16):
                connection.send(json.dumps(self._records(json.loads(request))).encode())


class LeaseClient:
    """Requests leases from a DataLoader's worker process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._pid = -1
        self._connection: socket.socket | None = None

    def records(self, number: int) -> list[int] | None:
        if self._pid != os.getpid() or self._connection is None:
            self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._connection.connect(self._path)
            self._pid = os.getpid()
        self._connection.send(json.dumps(number).encode())
        records: list[int] | None = json.loads(self._connection.recv(1 << 20))
        return records
