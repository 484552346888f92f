"""Starts shims, fast: one long-lived process per node that has everything imported and forks when asked.

It also starts the network's anchor and holds its namespaces open. It keeps no state about pods, so it may die and be
started again at any time; shims and anchor live on without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import socket
import sys
import traceback

from torchyard.node.shim import anchor, linux, record, sandbox, wire
from torchyard.node.shim.server import Shim
from torchyard.node.shim.serving import Server, close_others

SOCKET = "keeper.sock"


def main(root: str) -> None:
    """Become the node's keeper, unless there is one. `keeper.json` says which namespaces may be used."""
    settings = record.read(f"{root}/keeper.json") or {}
    detach(f"{root}/keeper.log")
    lock = lock_file(f"{root}/keeper.lock")
    if lock is None:
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    spaces = anchor.find_or_start(root, settings) if settings.get("namespaces") else None
    keeper = Keeper(root, spaces)
    gc.freeze()  # or else the first collection in a shim copies every page that holds an object
    keeper.loop.run()


class Keeper(Server):
    def __init__(self, root: str, spaces: anchor.Spaces | None) -> None:
        super().__init__(root, SOCKET)
        self._root, self._spaces = root, spaces

    def on_hello(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        self.answer(channel, {"pid": os.getpid()})

    def on_shim(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        """Fork a shim for the pod in the given directory. The shim itself answers, once it can be talked to."""
        # once is enough: a child whose end nobody asks for leaves nothing behind
        if os.fork() == 0:
            self._become_shim(channel, message["pod"])
        self.hang_up(channel)

    def _become_shim(self, channel: socket.socket, pod: str) -> None:
        try:
            os.setsid()
            close_others([channel.fileno(), *(self._spaces or ())])
            _redirect(f"{pod}/shim.log")
            lock = lock_file(f"{pod}/shim.lock")
            if lock is None:
                wire.send(channel, {"error": "the pod's shim is running already", "exists": True})
                os._exit(0)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            linux.become_subreaper()
            sandbox.enter(pod, self._spaces)
            shim = Shim(pod)
            wire.send(channel, {"pid": os.getpid()})
            channel.close()
            shim.run()
            os._exit(0)
        except BaseException as failed:  # the forked child must end here whatever happened
            traceback.print_exc()
            sys.stderr.flush()
            with contextlib.suppress(OSError):
                wire.send(channel, {"error": str(failed)})
            os._exit(1)

    def on_shutdown(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        self.answer(channel, {})
        self.close()


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
