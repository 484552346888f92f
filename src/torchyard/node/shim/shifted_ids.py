"""A user namespace of the pod's own, whose ids are a range that no other pod has.

The shim enters the namespace and stays the machine's user in it: it owns the files of the pod's directory. Containers
become root of the namespace before they build their root. A namespace cannot fill its own map with a range, so that a
helper stays behind until the shim has a pod and knows the range. The helper also creates the pod's IPC namespace: the
directory of its message queues belongs to the user who does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import traceback
from typing import TYPE_CHECKING, NoReturn

from torchyard.node.shim import linux, wire
from torchyard.node.shim.socket_server import close_inherited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COUNT = 65536  # ids of a pod
_ENTERED, _ATTACHED, _MAPPED = b"entered", b"attached", b"mapped"
_MAX_MESSAGE = 65536


class IdMapper:
    """The shim's end of the connection to its helper."""

    def __init__(self, channel: socket.socket, helper: int) -> None:
        self._channel, self._helper = channel, helper

    @property
    def files(self) -> list[int]:
        return [self._channel.fileno()]

    def finish(self, first: int, ipc_sysctls: Mapping[str, str]) -> None:
        """Map the ids from 0 to the range that begins with `first`, and enter the pod's IPC namespace."""
        self._channel.send(json.dumps({"first": first, "sysctls": dict(ipc_sysctls)}).encode())
        report, files = wire.receive_files(self._channel, _MAX_MESSAGE, 1)
        self._channel.close()
        os.waitpid(self._helper, 0)
        if report != _MAPPED:
            raise OSError(report.decode() or "the ids of the pod cannot be mapped")
        linux.setns(files[0], linux.NEWIPC)
        os.close(files[0])


def enter(attach: Callable[[int], None] | None) -> IdMapper:
    """Enter a new user namespace, with UTS and network namespaces that belong to it.

    `attach` connects the network of the process with the given id; None: the pod has the machine's network.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shim = os.getpid()
    helper = os.fork()
    if helper == 0:
        near.close()
        _help(far, shim, attach)
    far.close()
    linux.unshare(linux.NEWUSER | linux.NEWUTS | (linux.NEWNET if attach else 0))
    near.send(_ENTERED)
    report = near.recv(_MAX_MESSAGE)
    if report != _ATTACHED:
        raise OSError(report.decode() or "the helper of the pod's user namespace ended")
    return IdMapper(near, helper)


def _help(channel: socket.socket, shim: int, attach: Callable[[int], None] | None) -> NoReturn:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        linux.set_process_name("yard-ids")
        linux.die_with_parent()
        if channel.recv(_MAX_MESSAGE) != _ENTERED:
            os._exit(0)
        namespace = os.open(f"/proc/{shim}/ns/user", os.O_RDONLY | os.O_CLOEXEC)  # a shim with a pod hides it
        if attach:
            attach(shim)
        channel.send(_ATTACHED)
        close_inherited([channel.fileno(), namespace])
        text = channel.recv(_MAX_MESSAGE)
        if not text:
            os._exit(0)  # a spare shim that got no pod
        request = json.loads(text)
        linux.map_range(shim, request["first"], COUNT)
        linux.setns(namespace, linux.NEWUSER)
        become_root()
        linux.unshare(linux.NEWIPC)
        for name, value in request["sysctls"].items():
            with open(f"/proc/sys/{name.replace('.', '/')}", "w") as file:
                file.write(value)
        ipc = os.open("/proc/self/ns/ipc", os.O_RDONLY | os.O_CLOEXEC)
        socket.send_fds(channel, [_MAPPED], [ipc])
        os._exit(0)
    except BaseException as error:  # the forked child must end here whatever happened
        traceback.print_exc()
        channel.send(f"{error}"[:_MAX_MESSAGE].encode() or b"?")
        os._exit(1)


def become_root() -> None:
    """Become root of the pod's user namespace. There is no way back: the machine's ids have no number in it."""
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
