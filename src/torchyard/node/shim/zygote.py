"""Starts shims, fast: one long-lived process per node that has everything imported and forks when asked.

It also starts the namespace holder and holds its namespaces open. It keeps no state about pods, so it may die and be
started again at any time; shims and namespace holder live on without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from torchyard.node.shim import linux, namespace_holder, pod_namespaces, records, wire
from torchyard.node.shim.output import stamp
from torchyard.node.shim.shim_server import ShimServer
from torchyard.node.shim.socket_server import UnixSocketServer, close_others

SOCKET = "zygote.sock"
SPARES = 4  # shims that wait for a pod, with a network laid already: as many as the usual job has replicas
REFILL_SECONDS = 0.2
HANDOVER_SECONDS = 30.0


def main(root: str) -> None:
    """Become the node's zygote, unless there is one. `zygote.json` says which namespaces may be used."""
    settings = records.read(f"{root}/zygote.json") or {}
    detach(f"{root}/zygote.log")
    lock = _take_over(root)
    if lock is None:
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    namespaces = namespace_holder.find_or_start(root, settings) if settings.get("namespaces") else None
    zygote = ShimZygote(root, namespaces)
    linux.set_process_name("yard-zygote")
    gc.freeze()  # or else the first collection in a shim copies every page that holds an object
    zygote.loop.run()


def _take_over(root: str) -> int | None:
    """The zygote's lock, or None if there is a zygote: one that holds the lock without a word may be about to end."""
    deadline = time.monotonic() + HANDOVER_SECONDS
    while (lock := lock_file(f"{root}/zygote.lock")) is None:
        if _answers(root) or time.monotonic() > deadline:
            return None
        time.sleep(0.01)
    return lock


def _answers(root: str) -> bool:
    try:
        with wire.connect(root, SOCKET, timeout=HANDOVER_SECONDS) as channel:
            wire.send(channel, {"op": "hello"})
            return wire.receive(channel)[0] is not None
    except OSError:
        return False


class ShimZygote(UnixSocketServer):
    def __init__(self, root: str, namespaces: namespace_holder.Namespaces | None) -> None:
        super().__init__(root, SOCKET)
        self._namespaces = namespaces
        self._spares: list[socket.socket] = []
        self._refill_due = False
        if namespaces and namespaces.bridge:
            self._refill_later()

    def on_hello(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        self.answer(channel, {"pid": os.getpid()})

    def on_shim(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        """Have a shim for the pod in the given directory. The shim itself answers, once it can be talked to."""
        pod = message["pod"]
        plan = records.read(f"{pod}/pod.json") or {}
        wired = bool(plan.get("network"))
        # one fork is enough: a child whose end nobody asks for leaves nothing behind
        if not (wired and self._hand_over(channel, pod)) and os.fork() == 0:
            namespaces = self._namespaces if plan.get("sandboxed") else None
            _run_shim(lambda: (channel, pod), namespaces, keep=channel.fileno(), wired=wired)
        self.hang_up(channel)

    def _hand_over(self, channel: socket.socket, pod: str) -> bool:
        """Give the pod to a spare shim, if there is one."""
        while self._spares:
            with self._spares.pop(0) as spare, contextlib.suppress(OSError):  # it may have died
                wire.send(spare, {"pod": pod}, [channel.fileno()])
                self._refill_later()
                return True
        return False

    def _refill_later(self) -> None:
        """Not now: who asked for a shim is about to start something."""
        if not self._refill_due:
            self._refill_due = True
            self.loop.later(REFILL_SECONDS, self._refill)

    def _refill(self) -> None:
        self._refill_due = False
        if len(self._spares) >= SPARES:
            return
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            _run_shim(lambda: _await_pod(far), self._namespaces, keep=far.fileno(), wired=True)
        far.close()
        self._spares.append(near)
        self._refill_later()

    def on_shutdown(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        self.answer(channel, {})
        self.close()


def _await_pod(link: socket.socket) -> tuple[socket.socket, str]:
    """A spare's long wait; the zygote's end is its own."""
    linux.set_process_name("yard-spare")
    message, files = wire.receive(link)
    if message is None:
        os._exit(0)
    link.close()
    return socket.socket(fileno=files[0]), message["pod"]


def _run_shim(
    assigned: Callable[[], tuple[socket.socket, str]],
    namespaces: namespace_holder.Namespaces | None,
    *,
    keep: int,
    wired: bool,
) -> NoReturn:
    """A forked child's whole life. `assigned` answers who asked for the shim, and for which pod."""
    channel: socket.socket | None = None
    try:
        os.setsid()
        close_others([keep, *(namespaces.files if namespaces else ())])
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        problem = _prepare(namespaces, wired=wired)
        channel, pod = assigned()
        linux.set_process_name("yard-shim")
        _redirect(f"{pod}/shim.log")
        lock = lock_file(f"{pod}/shim.lock")
        if lock is None:
            with contextlib.suppress(OSError):  # who asked may be gone
                wire.send(channel, {"error": "the pod's shim is running already", "exists": True})
            os._exit(0)
        records.end_lost(pod, stamp())  # what a shim before this one left running died with it
        plan = records.read(f"{pod}/pod.json")
        if plan is None:
            raise FileNotFoundError(f"{pod}/pod.json")
        linux.become_subreaper()
        if plan["sandboxed"]:
            if problem:
                raise problem
            pod_namespaces.configure(plan)
        shim = ShimServer(pod)
        wire.send(channel, {"pid": os.getpid()})
        channel.close()
        shim.run()
        os._exit(0)
    except BaseException as failed:  # the forked child must end here whatever happened
        traceback.print_exc()
        sys.stderr.flush()
        if channel:
            with contextlib.suppress(OSError):
                wire.send(channel, {"error": str(failed)})
        os._exit(1)


def _prepare(namespaces: namespace_holder.Namespaces | None, *, wired: bool) -> OSError | None:
    """Enter the namespaces; what went wrong is told once there is somebody to tell it to."""
    if namespaces is None:
        return OSError("this zygote was started without namespaces")
    try:
        pod_namespaces.prepare(namespaces, wired=wired)
    except OSError as failed:
        return failed
    return None


def detach(log: str) -> None:
    """Leave the caller's session and files, as a daemon does."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    _redirect(log)


def _redirect(log: str) -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    for target, source in ((0, null), (1, out), (2, out)):
        os.dup2(source, target)
    os.close(null)
    os.close(out)


def lock_file(path: str) -> int | None:
    """Hold a lock as long as this process lives; None if somebody else does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor
