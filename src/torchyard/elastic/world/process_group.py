"""The process group of one world: it does not use torch's global state, and another thread can abort it.

The rendezvous store uses the control stream, so no store server can die. A peer that hangs does not reset its
connections, and gloo would wait for its timeout. Therefore `abort` shuts down the group's own sockets, and a blocked
collective raises at once. NCCL carries only gradients, and `abort` aborts its communicator; state and agreement use
gloo.
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
"""A last resort: a death resets connections, and the end of a lease reveals a hang; both abort the group earlier."""
FORMING_TIMEOUT = 10.0
POLL_DEVICE_EVERY = 20e-6
"""How often the host polls the device: a tenth of the time that launching the next kernels takes."""


class GroupBroken(Exception):
    """A collective failed, so some member of the world is gone."""


class _ControlStreamStore(Store):
    """The key-value store with which gloo connects its ranks, on the control stream."""

    def __init__(self, client: CoordinatorClient, fence: Fence) -> None:
        super().__init__()
        self._client = client
        self._fence = fence

    def set(self, key: str, value: Any) -> None:
        self._client.set_value(self._fence, key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._client.get_value(self._fence, key)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._client.wait_values(self._fence, keys, FORMING_TIMEOUT)

    def check(self, keys: list[str]) -> bool:
        return self._client.has_values(self._fence, keys)

    def delete_key(self, key: str) -> bool:
        """Do nothing: values end with their world."""
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        """Do nothing: the client has its own timeout."""


def nccl_group(store: Any, rank: int, size: int) -> Any:
    """Create a communicator without NCCL's watchdog, which would end the process after a failure."""
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=OPERATION_TIMEOUT)
    return dist.ProcessGroupNCCL(store, rank, size, options)


def abort_in_background(communicator: Any) -> None:
    """Abort in a thread: it waits about a second for NCCL's threads, and nothing else has to wait for it."""
    threading.Thread(target=communicator.abort, name="elastic-abort", daemon=True).start()


def wait_for_device(finished: Callable[[], bool], aborted: threading.Event) -> None:
    """Wait for the device. The kernels of an aborted communicator finish too, with unusable results."""
    while not finished() and not aborted.is_set():
        time.sleep(POLL_DEVICE_EVERY)
    if aborted.is_set():
        raise GroupBroken("the group was aborted")


class ProcessGroup:
    """The collectives of one world. A world of one rank needs no sockets and cannot break.

    Args:
        rank: the rank of this worker.
        size: the number of members.
        nccl: whether tensors on a GPU travel over NCCL.
    """

    def __init__(self, rank: int, size: int, *, nccl: bool = False) -> None:
        self.rank = rank
        self.size = size
        self._use_nccl = nccl and size > 1
        self._pg: Any = None
        self._nccl: Any = None
        self._aborted = threading.Event()
        self._sockets: set[int] = set()
        self._closing = threading.Lock()

    def connect(self, client: CoordinatorClient, fence: Fence) -> None:
        if self.size == 1:
            return
        before = _sockets()
        self._store = _ControlStreamStore(client, fence)
        try:
            # In a thread: gloo does not distinguish a peer that died before it connected from a slow one.
            groups = client.run_unless_superseded(fence, lambda: self._create_groups(client), FORMING_TIMEOUT)
        except (RuntimeError, TimeoutError) as error:
            raise GroupBroken(_first_line(error)) from error
        self._pg, self._nccl = groups
        self._sockets = _sockets() - before - {client.fileno()}
        if self._aborted.is_set():  # before the sockets were known
            raise GroupBroken("the group was aborted while it formed")

    def _create_groups(self, client: CoordinatorClient) -> tuple[Any, Any]:
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # missing in torch's stubs
        options._timeout = timedelta(seconds=OPERATION_TIMEOUT)
        # Other members reach this worker at the address that it uses towards the coordinator.
        options._devices = [ProcessGroupGloo.create_device(hostname=client.own_address)]
        gloo = ProcessGroupGloo(self._store, self.rank, self.size, options)
        if not self._use_nccl:
            return gloo, None
        return gloo, nccl_group(PrefixStore("nccl", self._store), self.rank, self.size)

    def all_reduce(self, tensor: torch.Tensor) -> Any:
        return self._start(lambda: self._backend_for(tensor).allreduce([tensor], dist.AllreduceOptions()))

    def all_to_all(
        self, output: torch.Tensor, input_tensor: torch.Tensor, output_split: Sequence[int], input_split: Sequence[int]
    ) -> Any:
        options = dist.AllToAllOptions()
        return self._start(
            lambda: self._backend_for(input_tensor).alltoall_base(
                output, input_tensor, list(output_split), list(input_split), options
            )
        )

    def all_gather(self, output: torch.Tensor, input_tensor: torch.Tensor) -> Any:
        return self._start(lambda: self._backend_for(input_tensor)._allgather_base(output, input_tensor))

    def send(self, tensor: torch.Tensor, to: int) -> Any:
        return self._start(lambda: self._pg.send([tensor], to, 0))

    def receive(self, tensor: torch.Tensor, source: int) -> Any:
        return self._start(lambda: self._pg.recv([tensor], source, 0))

    def _backend_for(self, tensor: torch.Tensor) -> Any:
        return self._nccl if self._nccl is not None and tensor.is_cuda else self._pg

    def _start(self, operation: Any) -> Any:
        if self._pg is None:
            raise GroupBroken("the group was closed")
        # Gloo may wait for ever if its connections were shut down between two collectives.
        if self._aborted.is_set():
            raise GroupBroken("the group was aborted")
        try:
            return operation()
        except RuntimeError as error:
            raise GroupBroken(_first_line(error)) from error

    def wait(self, *works: Any) -> None:
        try:
            for work in works:
                work.wait()
            if self._nccl is not None:
                # NCCL's `wait` only orders streams, but the host must know the result before it applies the step.
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record()
                wait_for_device(event.query, self._aborted)
        except RuntimeError as error:
            raise GroupBroken(_first_line(error)) from error

    def abort(self) -> None:
        """Make blocked collectives raise. Any thread may call it. Listening sockets stay, or gloo ends the process."""
        self._aborted.set()
        if self._nccl is not None:
            abort_in_background(self._nccl)
        with self._closing:
            for number in self._sockets:
                try:
                    with socket.socket(fileno=os.dup(number)) as connection:
                        if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                            connection.shutdown(socket.SHUT_RDWR)
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
            abort_in_background(self._nccl)
            self._nccl = None


def _sockets() -> set[int]:
    numbers = set()
    for number in (int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                numbers.add(number)
    return numbers


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:200] or type(error).__name__
