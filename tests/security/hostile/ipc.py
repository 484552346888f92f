"""System V and POSIX IPC, unix sockets and kernel keyrings: those of the machine and of other pods."""

from __future__ import annotations

import ctypes
import os
import socket

from tests.security.hostile import kernel, targets
from tests.security.hostile.registry import ABSENT, ALLOWED, Verdict, add, attempt, case, denied

KEYS = {"shared memory": "shmget", "semaphores": "semget", "messages": "msgget"}


def _get(call: str) -> Verdict:
    """The segment of the machine with the key of the tests; without IPC_CREAT it is found or absent."""
    key = targets.number("IPC_KEY")
    arguments = {"shmget": (key, 0, 0), "semget": (key, 0, 0), "msgget": (key, 0)}[call]
    return attempt(kernel.call, call, *arguments)


for _name, _call in KEYS.items():
    add(f"ipc.of_the_machine:{_name}", _get, _call)


@case
def own_shared_memory() -> Verdict:
    identifier = kernel.call("shmget", 0, 4096, 0o1600)
    kernel.call("shmctl", identifier, 0, None)
    return ALLOWED


@case
def segments_listed() -> Verdict:
    """/proc/sysvipc shows the segments of the IPC namespace."""
    key = targets.number("IPC_KEY")
    verdict = ABSENT
    for name in ("shm", "sem", "msg"):
        with open(f"/proc/sysvipc/{name}") as lines:
            if any(line.split()[0] == str(key) for line in lines):
                verdict = ALLOWED
    return verdict


@case
def message_queue_of_the_machine() -> Verdict:
    try:
        kernel.call("mq_open", targets.text("HOST_MARK").encode(), os.O_RDONLY, 0, None)
    except OSError as error:
        return denied(error)
    return ALLOWED


def _connect(address: str) -> Verdict:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(3)
        try:
            client.connect(address)
        except ConnectionRefusedError:
            return ABSENT
        except OSError as error:
            return denied(error)
    return ALLOWED


@case
def abstract_socket_of_the_machine() -> Verdict:
    return _connect("\0" + targets.text("HOST_MARK"))


@case
def abstract_socket_of_another_pod() -> Verdict:
    return _connect("\0victim-of-" + targets.text("HOST_MARK"))


@case
def socket_file_of_the_machine() -> Verdict:
    return _connect(targets.text("HOST_FILE") + ".sock")


@case
def sockets_of_the_runtime_listed() -> Verdict:
    """With the machine's network, /proc/net/unix lists its sockets; the name of an abstract one suffices to connect."""
    reached = []
    with open("/proc/net/unix") as lines:
        for line in lines:
            name = line.split()[-1]
            if name.startswith("@") and any(word in name for word in ("yard", "containerd", "shim")):
                verdict = _connect("\0" + name[1:])
                if verdict == ALLOWED:
                    reached.append(name)
    return reached


@case
def segment_of_another_pod() -> Verdict:
    return attempt(kernel.call, "shmget", targets.number("IPC_KEY") + 1, 0, 0)


@case
def shared_memory_file_of_another_pod() -> Verdict:
    return ALLOWED if os.path.exists(f"/dev/shm/victim-{targets.text('HOST_MARK')}") else ABSENT


@case
def key_added() -> Verdict:
    return attempt(kernel.call, "add_key", b"user", b"escape", b"x", 1, -3)


@case
def key_of_another_pod() -> Verdict:
    """A key that another pod put into its session keyring, by search and in /proc/keys."""
    try:
        with open("/proc/keys") as lines:
            if any("victim-key" in line for line in lines):
                return ALLOWED
    except OSError:
        pass  # not readable: the search decides
    return attempt(kernel.call, "keyctl", 10, -3, b"user", b"victim-key", 0)


@case
def session_keyring() -> Verdict:
    return attempt(kernel.call, "keyctl", 0, -3, 0)


@case
def new_session_keyring() -> Verdict:
    return attempt(kernel.call, "keyctl", 1, None)


@case
def user_keyring_linked() -> Verdict:
    """The user's own keyring is shared by all processes of a uid: with it, pods would share keys."""
    return attempt(kernel.call, "keyctl", 8, -4, -3)


@case
def key_requested() -> Verdict:
    return attempt(kernel.call, "request_key", b"user", b"escape-missing", None, 0)


@case
def credentials_forged() -> Verdict:
    """SCM_CREDENTIALS with the pid of another process."""
    import struct

    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    credentials = struct.pack("iII", 1, 0, 0)
    return attempt(lambda: near.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, credentials)]))


@case
def memory_file_sealed_and_executable() -> Verdict:
    """Not a refusal: programs use it, and it must work."""
    descriptor = os.memfd_create("escape")
    os.write(descriptor, b"x" * ctypes.sizeof(ctypes.c_long))
    return ALLOWED
