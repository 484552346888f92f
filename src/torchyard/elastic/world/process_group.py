"""A process group for one world, built without torch's global state, that can be cut from another thread.

Rendezvous goes over the control stream (no store server whose host could die). A peer that hangs sends no reset, and
gloo would wait for its timeout: `cut` shuts the group's own sockets down, so that a blocked collective raises at once.
With NCCL, which carries gradients only, `cut` aborts its communicator; state and agreement stay with gloo.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroupGloo
from torch.distributed.distributed_c10d import PrefixStore, Store

from torchyard.elastic.wire import Fence
from torchyard.elastic.world.coordinator_client import CoordinatorClient

OPERATION_TIMEOUT = 600.0
"""Only a last resort: death is seen as a reset, a hang by lease or beacon, and both cut the group."""
FORMING_TIMEOUT = 10.0
LOOK_EVERY = 20e-6
"""How often the host looks whether the device has finished; a tenth of what launching the next kernels takes."""


class GroupBroken(Exception):
    """A collective failed: some member of the world is gone."""


class _ControlStreamStore(Store):
    """The key-value store gloo forms its mesh with, on the control stream."""

    def __init__(self, link: CoordinatorClient, fence: Fence) -> None:
        super().__init__()
        self._link = link
        self._fence = fence

    def set(self, key: str, value: Any) -> None:
        self._link.put(self._fence, key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._link.value(self._fence, key)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._link.wait_values(self._fence, keys, FORMING_TIMEOUT)

    def check(self, keys: list[str]) -> bool:
        return self._link.has_values(self._fence, keys)

    def delete_key(self, key: str) -> bool:
        """Values go with their world."""
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        """The link has its own."""


def nccl_group(store: Any, rank: int, size: int) -> Any:
    """A communicator whose failures are ours to handle: NCCL's own watchdog would end the process."""
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=OPERATION_TIMEOUT)
    return dist.ProcessGroupNCCL(store, rank, size, options)


def abort_aside(communicator: Any) -> None:
    """An abort waits for NCCL's own threads, about a second: neither the next group nor the control thread needs to."""
    threading.Thread(target=communicator.abort, name="elastic-abort", daemon=True).start()


def watch(finished: Callable[[], bool], severed: threading.Event) -> None:
    """Wait for the device. An aborted communicator's kernels finish too, with garbage: then nothing may be used."""
    while not finished() and not severed.is_set():
        time.sleep(LOOK_EVERY)
    if severed.is_set():
        raise GroupBroken("the group was cut")


class ProcessGroup:
    """The members of one world, in rank order. A world of one needs no sockets and cannot break."""

    def __init__(self, rank: int, size: int, *, nccl: bool = False) -> None:
        self.rank = rank
        self.size = size
        self._wants_nccl = nccl and size > 1
        self._pg: Any = None
        self._nccl: Any = None
        self._severed = threading.Event()
        self._sockets: set[int] = set()
        self._closing = threading.Lock()

    def connect(self, link: CoordinatorClient, fence: Fence) -> None:
        if self.size == 1:
            return
        before = _sockets()
        self._store = _ControlStreamStore(link, fence)
        try:
            # Aside: gloo waits for a peer that has died before it connected as for one that is slow.
            made = link.do_until_overtaken(fence, lambda: self._form(link), FORMING_TIMEOUT)
        except (RuntimeError, TimeoutError) as error:
            raise GroupBroken(_brief(error)) from error
        self._pg, self._nccl = made
        self._sockets = _sockets() - before - {link.fileno()}

    def _form(self, link: CoordinatorClient) -> tuple[Any, Any]:
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # missing in torch's stubs
        options._timeout = timedelta(seconds=OPERATION_TIMEOUT)
        # At the address that the coordinator sees.
        options._devices = [ProcessGroupGloo.create_device(hostname=link.own_address)]
        gloo = ProcessGroupGloo(self._store, self.rank, self.size, options)
        if not self._wants_nccl:
            return gloo, None
        return gloo, nccl_group(PrefixStore("nccl", self._store), self.rank, self.size)

    def all_reduce(self, tensor: torch.Tensor) -> Any:
        return self._begin(lambda: self._for(tensor).allreduce([tensor], dist.AllreduceOptions()))

    def all_to_all(
        self, output: torch.Tensor, given: torch.Tensor, output_split: Sequence[int], given_split: Sequence[int]
    ) -> Any:
        options = dist.AllToAllOptions()
        return self._begin(
            lambda: self._for(given).alltoall_base(output, given, list(output_split), list(given_split), options)
        )

    def all_gather(self, output: torch.Tensor, given: torch.Tensor) -> Any:
        return self._begin(lambda: self._for(given)._allgather_base(output, given))

    def send(self, tensor: torch.Tensor, to: int) -> Any:
        return self._begin(lambda: self._pg.send([tensor], to, 0))

    def receive(self, tensor: torch.Tensor, source: int) -> Any:
        return self._begin(lambda: self._pg.recv([tensor], source, 0))

    def _for(self, tensor: torch.Tensor) -> Any:
        return self._nccl if self._nccl is not None and tensor.is_cuda else self._pg

    def _begin(self, operation: Any) -> Any:
        if self._pg is None:
            raise GroupBroken("the group was closed")
        try:
            return operation()
        except RuntimeError as error:
            raise GroupBroken(_brief(error)) from error

    def wait(self, *works: Any) -> None:
        try:
            for work in works:
                work.wait()
            if self._nccl is not None:
                # Its `wait` only orders streams: the host must know before anything is applied.
                reached = torch.cuda.Event()  # type: ignore[no-untyped-call]
                reached.record()
                watch(reached.query, self._severed)
        except RuntimeError as error:
            raise GroupBroken(_brief(error)) from error

    def cut(self) -> None:
        """Safe from any thread. Listeners are spared: cutting one ends the process."""
        self._severed.set()
        if self._nccl is not None:
            abort_aside(self._nccl)
        with self._closing:
            for number in self._sockets:
                try:
                    with socket.socket(fileno=os.dup(number)) as held:
                        if not held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                            held.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def sockets(self) -> set[int]:
        return set(self._sockets)

    def close(self) -> None:
        with self._closing:
            self._sockets = set()
        if self._pg is not None:
            self._pg.abort()
            self._pg = None
        if self._nccl is not None:
            abort_aside(self._nccl)
            self._nccl = None


def _sockets() -> set[int]:
    found = set()
    for number in (int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                found.add(number)
    return found


def _brief(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:200] or type(error).__name__
