"""Which micro-batch a program's next batch is: handed out in order, to its own process and to its loader's workers.

A DataLoader may load ahead, so a lease can outlive the world it was given in. Then its batch is kept if it is still
ours and dropped if it is not, and what is ours now is leased next. Knows nothing of models.
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
    """`position` tells the last applied step and this worker's block of micro-batches."""

    def __init__(self, order: StepSampler, position: Callable[[], tuple[int, range]]) -> None:
        self._order = order
        self._position = position
        self._changed = threading.Condition()
        self._given: dict[int, BatchLease] = {}
        self._dropped = 0

    def take(self, number: int) -> BatchLease | None:
        """The lease of the program's batch `number`. Waits while all is leased but not yet applied; None at the end."""
        with self._changed:
            while number not in self._given:
                applied, block = self._position()
                if applied >= self._order.steps:
                    return None
                found = self._next(applied, block)
                if found is not None:
                    self._given[number] = found
                    break
                self._changed.wait(0.2)
            return self._given[number]

    def _next(self, applied: int, block: range) -> BatchLease | None:
        held = set(self._given.values())
        for step in range(applied + 1, self._order.steps + 1):
            for micro in block:
                lease = BatchLease(step, micro)
                if lease not in held and self._order.micro_span(step, micro).records:
                    return lease
        return None

    def of(self, number: int) -> BatchLease | None:
        with self._changed:
            return self._given.get(number)

    def settle(self, applied: int, block: range) -> None:
        """Forget leases that are done or no longer ours, so that what we now own can be leased."""
        with self._changed:
            keep = {n: lease for n, lease in self._given.items() if lease.step > applied and lease.micro in block}
            self._given = keep
            self._changed.notify_all()


class LeaseServer:
    """Answers the loader's worker processes, which cannot see the training process' memory."""

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
            while asked := connection.recv(1 << 16):
                connection.send(json.dumps(self._records(json.loads(asked))).encode())


class LeaseClient:
    """The other end, in a loader's worker process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._owner = -1
        self._connection: socket.socket | None = None

    def records(self, number: int) -> list[int] | None:
        if self._owner != os.getpid() or self._connection is None:
            self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._connection.connect(self._path)
            self._owner = os.getpid()
        self._connection.send(json.dumps(number).encode())
        answer: list[int] | None = json.loads(self._connection.recv(1 << 20))
        return answer
