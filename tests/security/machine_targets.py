"""A program that puts things on the machine which no pod may reach, and prints their names as JSON.

It runs as the user of the plane: what belongs to that user is the nearest to its pods. It ends when its input ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from pathlib import Path

from tests.security.hostile import kernel

IPC_CREAT, IPC_RMID = 0o1000, 0
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")


def main(mark: str, directory: str) -> None:
    """`mark` is in the names of all that is created; it is also in this process's command line."""
    key = 0x45000000 + os.getpid() * 2
    segments = (
        kernel.call("shmget", key, 4096, IPC_CREAT | 0o600),
        kernel.call("semget", key, 1, IPC_CREAT | 0o600),
        kernel.call("msgget", key, IPC_CREAT | 0o600),
    )
    kernel.call("mq_open", mark.encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
    shared = Path("/dev/shm", mark)
    shared.write_text("secret")
    secret = Path(directory, mark)
    secret.write_text("secret")
    secret.chmod(0o600)
    sockets = [_listen("\0" + mark), _listen(f"{secret}.sock")]
    loopback = socket.create_server(("127.0.0.1", 0))
    for server in (*sockets, loopback):
        threading.Thread(target=_greet, args=(server, mark.encode()), daemon=True).start()
    disk = os.stat("/").st_dev
    names = {
        "HOST_MARK": mark,
        "HOST_PID": str(os.getpid()),
        "HOST_FILE": str(secret),
        "HOST_DISK": f"{os.major(disk)}:{os.minor(disk)}",
        "CAPABILITIES": _capabilities(),
        "IPC_KEY": str(key),
        "LOOPBACK_PORT": str(loopback.getsockname()[1]),
        **{f"HOST_NS_{kind.upper()}": os.readlink(f"/proc/self/ns/{kind}") for kind in NAMESPACES},
    }
    sys.stdout.write(json.dumps(names) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    shared.unlink()
    _remove(*segments)
    kernel.raw(241 if kernel.MACHINE == "x86_64" else 181, mark.encode())  # mq_unlink


def _capabilities() -> str:
    """Those that root of this machine can have."""
    with open("/proc/self/status") as lines:
        return next(line.split()[1] for line in lines if line.startswith("CapBnd"))


def _remove(memory: int, semaphores: int, messages: int) -> None:
    semctl, msgctl = (66, 71) if kernel.MACHINE == "x86_64" else (191, 187)
    kernel.call("shmctl", memory, IPC_RMID, None)
    kernel.raw(semctl, semaphores, 0, IPC_RMID)
    kernel.raw(msgctl, messages, IPC_RMID, None)


def _listen(address: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    return server


def _greet(server: socket.socket, mark: bytes) -> None:
    while True:
        client, _ = server.accept()
        with client, contextlib.suppress(ConnectionError):
            client.send(mark)


if __name__ == "__main__":
    main(*sys.argv[1:])
