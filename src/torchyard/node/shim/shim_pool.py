"""Shims that enter their namespaces before they have a pod. Some are forked ahead: a pod that gets one starts sooner.

A shim and the zygote talk over a pair of sockets: the shim says that it is ready, the zygote attaches its network,
and later sends the pod, with the connection of the client who asked for it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from torchyard.node.shim import linux, namespace_holder, pod_namespaces, shifted_ids, wire

if TYPE_CHECKING:
    from torchyard.node.shim.event_loop import EpollLoop
    from torchyard.node.shim.record_types import ErrorReply, PodAssignment, ReadyReply

REFILL_SECONDS = 0.05  # after the last pod: it is about to start a process
_INTERVAL_SECONDS = 0.01  # between two forks
_RETRY_SECONDS = 1.0


class PooledShim(NamedTuple):
    pid: int
    link: socket.socket


class WaitingPod(NamedTuple):
    directory: str
    ids: int
    client: socket.socket


class ShimPool:
    """The shims of one kind: with a user namespace of their own (`shifted`), or with the one of the node.

    `run` is the whole life of a forked shim. `spares` says how many are ready for pods that may come.
    """

    def __init__(
        self,
        loop: EpollLoop,
        namespaces: namespace_holder.Namespaces,
        run: Callable[[socket.socket], NoReturn],
        *,
        shifted: bool,
        spares: int,
    ) -> None:
        self._loop, self._namespaces, self._run = loop, namespaces, run
        self._shifted, self._spares = shifted, spares
        self._preparing: dict[int, PooledShim] = {}  # by the file of their link
        self._ready: deque[PooledShim] = deque()
        self._waiting: deque[WaitingPod] = deque()
        self._refill_at = 0.0
        self._refill_due = False
        self._refill_later(REFILL_SECONDS)

    def assign(self, pod: WaitingPod) -> None:
        """Give the pod to a shim that is ready, or to the next one that is."""
        self._waiting.append(pod)
        self._hand_out()
        self._refill_later(REFILL_SECONDS)

    def _hand_out(self) -> None:
        while self._ready and self._waiting:
            shim, pod = self._ready.popleft(), self._waiting[0]
            with shim.link, contextlib.suppress(OSError):  # a spare shim may have died
                wire.send(shim.link, self._assignment(shim, pod), [pod.client.fileno()])
                self._waiting.popleft().client.close()
        try:
            while len(self._waiting) > len(self._preparing):
                self._fork()
        except OSError as error:
            self._refuse_unserved(str(error))

    def _assignment(self, shim: PooledShim, pod: WaitingPod) -> PodAssignment:
        try:
            if self._shifted:
                linux.map_range(shim.pid, pod.ids, shifted_ids.COUNT)
        except OSError as error:
            return {"pod": pod.directory, "error": str(error)}
        return {"pod": pod.directory}

    def _fork(self) -> None:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = os.fork()
        except OSError:
            near.close()
            far.close()
            raise
        if pid == 0:
            self._run(far)
        far.close()
        shim = PooledShim(pid, near)
        self._preparing[near.fileno()] = shim
        self._loop.watch(near.fileno(), lambda: self._serve(shim))

    def _serve(self, shim: PooledShim) -> None:
        """A shim is ready, or has ended before it was."""
        self._loop.unwatch(shim.link.fileno())
        del self._preparing[shim.link.fileno()]
        try:
            message = wire.receive(shim.link)[0]
            if message is None:
                raise ConnectionResetError("the shim ended before it was ready")
            wire.send(shim.link, {} if "error" in message else self._attach(shim))
        except OSError as error:
            shim.link.close()
            self._refuse_unserved(str(error))
            return
        self._ready.append(shim)
        self._hand_out()

    def _attach(self, shim: PooledShim) -> ReadyReply:
        """An error is the shim's to report, once it has a client."""
        try:
            if self._shifted:
                pod_namespaces.attach_network(self._namespaces, shim.pid)
        except OSError as error:
            return {"error": str(error)}
        return {}

    def _refuse_unserved(self, reason: str) -> None:
        """Pods wait for shims that are being prepared, one each."""
        while len(self._waiting) > len(self._preparing):
            pod = self._waiting.popleft()
            refuse(pod.client, reason, wire.SYSTEM_ERROR)
            pod.client.close()

    def _refill_later(self, seconds: float) -> None:
        self._refill_at = time.monotonic() + seconds
        if self._spares and not self._refill_due:
            self._refill_due = True
            self._loop.call_later(seconds, self._refill)

    def _refill(self) -> None:
        self._refill_due = False
        rest = self._refill_at - time.monotonic()
        if rest > 0:
            self._refill_later(rest)
        elif len(self._ready) + len(self._preparing) < self._spares:
            try:
                self._fork()
            except OSError:  # no more processes: pods that come are told
                self._refill_later(_RETRY_SECONDS)
            else:
                self._refill_later(_INTERVAL_SECONDS)


def announce(link: socket.socket, *, problem: str = "") -> None:
    """The shim's side: it has its namespaces, or cannot have them. Returns when its network is attached."""
    wire.send(link, {"error": problem} if problem else {})
    reply: ReadyReply | None = wire.receive(link)[0]  # type: ignore[assignment]
    if reply is None:
        os._exit(0)  # the zygote has ended
    if "error" in reply:
        raise OSError(reply["error"])


def await_pod(link: socket.socket) -> tuple[socket.socket, PodAssignment]:
    """The shim's side: wait for a pod. When the zygote ends, so does the shim."""
    linux.set_process_name("yard-spare")
    assignment: PodAssignment | None
    assignment, files = wire.receive(link)  # type: ignore[assignment]
    if assignment is None:
        os._exit(0)
    link.close()
    return socket.socket(fileno=files[0]), assignment


def refuse(client: socket.socket, text: str, code: str) -> None:
    reply: ErrorReply = {"error": text, "code": code}
    with contextlib.suppress(OSError):  # the client may be gone
        wire.send(client, reply)
