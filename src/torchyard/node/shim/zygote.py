"""The zygote: one long-lived process per node that has everything imported and forks a shim when asked.

It also starts the namespace holder and keeps its namespaces open. It has no state about pods, so it may die and be
started again at any time; shims and namespace holder live on without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import resource
import signal
import socket
import sys
import time
import traceback
from typing import TYPE_CHECKING, NoReturn

from torchyard.node.shim import (
    legacy,
    linux,
    namespace_holder,
    pids,
    pod_namespaces,
    records,
    shim_pool,
    shim_server,
    wire,
)
from torchyard.node.shim.output import timestamp
from torchyard.node.shim.shim_pool import ShimPool, WaitingPod
from torchyard.node.shim.socket_server import UnixSocketServer, close_inherited

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchyard.node.shim.record_types import HelloReply, PidsLimit, PodAssignment, StartShimRequest, ZygoteSettings

SOCKET, SETTINGS, LOG, LOCK = "zygote.sock", "zygote.json", "zygote.log", "zygote.lock"
SOFT_LIMIT_VARIABLE = "TORCHYARD_SOFT_NOFILE"  # set by the plane
SPARE_SHIMS = 4  # forked ahead, already attached to the network: as many as a usual job has replicas
HANDOVER_SECONDS = 30.0
SHIM_HANDOVER_SECONDS = 2.0


def main(root: str) -> None:
    """Become the node's zygote, unless there is one. `zygote.json` says which namespaces it may use."""
    _restore_open_file_limit()
    settings: ZygoteSettings | None = records.read(f"{root}/{SETTINGS}")
    daemonize(f"{root}/{LOG}")
    lock = _take_over(root, LOCK, SOCKET, HANDOVER_SECONDS)
    if lock is None:
        return
    legacy.shut_down_zygote(root)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    namespaces = namespace_holder.find_or_start(root, settings) if settings and settings["namespaces"] else None
    pids_limit = settings.get("pids") if settings else None
    if pids_limit:
        pids.remove_unused(pids_limit["parent"])
    shifted = bool(settings and settings.get("shifted_ids"))
    zygote = ShimZygote(root, namespaces, pids_limit, shifted=shifted)
    linux.set_process_name("yard-zygote")
    gc.freeze()  # otherwise the first collection in a shim copies every page that holds an object
    zygote.loop.run()


def _restore_open_file_limit() -> None:
    """The plane raises its own limit of open files; pods get the one that the plane was started with."""
    soft = os.environ.pop(SOFT_LIMIT_VARIABLE, "")
    if soft:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(int(soft), hard) if hard >= 0 else int(soft), hard))


def _take_over(directory: str, lock_name: str, socket_name: str, seconds: float) -> int | None:
    """The lock of a zygote or a shim, or None if one replies.

    One that has the lock and does not reply may be about to end, or is a child that it had just forked when it was
    killed: the child lets go of the lock at once.
    """
    deadline = time.monotonic() + seconds
    while (lock := lock_file(f"{directory}/{lock_name}")) is None:
        if _answers(directory, socket_name, seconds) or time.monotonic() > deadline:
            return None
        time.sleep(0.01)
    return lock


def _answers(directory: str, socket_name: str, seconds: float) -> bool:
    try:
        with wire.connect(directory, socket_name, timeout=seconds) as channel:
            wire.send(channel, {"op": "hello"})
            return wire.receive(channel)[0] is not None
    except OSError:
        return False


class ShimZygote(UnixSocketServer):
    def __init__(
        self,
        root: str,
        namespaces: namespace_holder.Namespaces | None,
        pids_limit: PidsLimit | None = None,
        *,
        shifted: bool = False,
    ) -> None:
        super().__init__(root, SOCKET)
        self._namespaces, self._pids_limit = namespaces, pids_limit
        self._pools: dict[bool, ShimPool] = {}  # by whether their pods have ids of their own
        if namespaces and namespaces.bridge:
            for kind in (False, True):
                self._pools[kind] = self._pool(namespaces, shifted=kind, spares=SPARE_SHIMS if kind == shifted else 0)

    def _pool(self, namespaces: namespace_holder.Namespaces, *, shifted: bool, spares: int) -> ShimPool:
        def enter(link: socket.socket) -> None:
            try:
                if shifted:
                    pod_namespaces.create_own()
                else:
                    pod_namespaces.enter_shared(namespaces, has_network=True)
            except OSError as error:
                shim_pool.announce(link, problem=str(error))
                raise
            shim_pool.announce(link)
            pod_namespaces.set_up_network()

        def run(link: socket.socket) -> NoReturn:
            keep = [link.fileno(), *namespaces.files]
            _run_shim(lambda: enter(link), lambda: shim_pool.await_pod(link), self._pids_limit, keep=keep)

        return ShimPool(self.loop, namespaces, run, shifted=shifted, spares=spares)

    def on_hello(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        reply: HelloReply = {"pid": os.getpid()}
        self.reply(channel, reply)

    def on_shim(self, channel: socket.socket, message: StartShimRequest, files: list[int]) -> None:
        """Have a shim for the pod in the given directory. The shim itself replies, once it serves requests."""
        pod = message["pod"]
        config = records.read_pod(pod)
        ids = config.get("ids", 0) if config is not None else 0
        if self._pools and config is not None and config.get("network"):
            self.loop.unwatch(channel.fileno())
            self._pools[bool(ids)].assign(WaitingPod(pod, ids, channel))
            return
        # One fork is enough: SIGCHLD is ignored, so a child that ends leaves no zombie.
        if os.fork() == 0:
            self._run_without_network(channel, pod, sandboxed=config is not None and config["sandboxed"])
        self.close_channel(channel)

    def _run_without_network(self, channel: socket.socket, pod: str, *, sandboxed: bool) -> NoReturn:
        """The life of a shim whose pod uses the machine's network."""
        namespaces = self._namespaces if sandboxed else None

        def enter() -> None:
            if namespaces is None:
                raise OSError("this zygote was started without namespaces")
            pod_namespaces.enter_shared(namespaces, has_network=False)

        keep = [channel.fileno(), *(namespaces.files if namespaces else ())]
        _run_shim(enter, lambda: (channel, {"pod": pod}), self._pids_limit, keep=keep)

    def on_shutdown(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        self.reply(channel, {})
        self.close()


def _run_shim(
    enter: Callable[[], None],
    assignment: Callable[[], tuple[socket.socket, PodAssignment]],
    pids_limit: PidsLimit | None,
    *,
    keep: list[int],
) -> NoReturn:
    """A forked child's whole life: it enters its namespaces, then gets the client's connection and the pod."""
    channel: socket.socket | None = None
    try:
        os.setsid()
        close_inherited(keep)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if pids_limit:
            _join_pids_group(pids_limit)
        problem = _problem_of(enter)
        channel, assigned = assignment()
        pod = assigned["pod"]
        linux.set_process_name("yard-shim")
        linux.set_dumpable(False)  # its children neither, until they exec: a container must not trace them
        _redirect_output(f"{pod}/shim.log")
        lock = _take_over(pod, records.SHIM_LOCK, shim_server.SOCKET, SHIM_HANDOVER_SECONDS)
        if lock is None:
            shim_pool.refuse(channel, "the pod's shim is running already", wire.ALREADY_RUNNING)
            os._exit(0)
        records.mark_lost(pod, timestamp())  # the containers of an earlier shim died with it
        config = records.read_pod(pod)
        if config is None:
            raise FileNotFoundError(records.pod_path(pod))
        linux.become_subreaper()
        if config["sandboxed"]:
            if problem:
                raise problem
            if "error" in assigned:
                raise OSError(assigned["error"])
            pod_namespaces.configure(config)
        shim = shim_server.ShimServer(pod)
        reply: HelloReply = {"pid": os.getpid()}
        wire.send(channel, reply)
        channel.close()
        shim.run()
        os._exit(0)
    except BaseException as error:  # the forked child must end here whatever happened
        traceback.print_exc()
        sys.stderr.flush()
        if channel:
            shim_pool.refuse(channel, str(error), wire.SYSTEM_ERROR)
        os._exit(1)


def _problem_of(enter: Callable[[], None]) -> OSError | None:
    """Enter the namespaces. An error is reported later, once the shim has a client."""
    with contextlib.suppress(OSError):  # a kernel without keyrings, or no more are allowed to this user
        linux.join_session_keyring()
    try:
        enter()
    except OSError as error:
        return error
    return None


def _join_pids_group(limit: PidsLimit) -> None:
    try:
        pids.join(limit)
    except OSError as error:
        os.write(2, f"the pod's processes are not limited: reason={str(error)!r}\n".encode())


def daemonize(log: str) -> None:
    """Leave the caller's session and files."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    _redirect_output(log)


def _redirect_output(log: str) -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    for target, source in ((0, null), (1, out), (2, out)):
        os.dup2(source, target)
    os.close(null)
    os.close(out)


def lock_file(path: str) -> int | None:
    """Hold a lock as long as this process lives; None if another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor
