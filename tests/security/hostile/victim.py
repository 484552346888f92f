"""Another pod, with things that the hostile ones must not reach. It prints a line when all exist, and waits."""

from __future__ import annotations

import socket
import sys
import time

from tests.security.hostile import kernel, targets

IPC_CREAT = 0o1000


def main() -> None:
    kernel.call("shmget", targets.number("IPC_KEY") + 1, 4096, IPC_CREAT | 0o666)
    kernel.call("add_key", b"user", b"victim-key", b"secret", 6, -3)
    server = socket.socket(socket.AF_UNIX)
    server.bind("\0victim-of-" + targets.text("HOST_MARK"))
    server.listen()
    with open(f"/dev/shm/victim-{targets.text('HOST_MARK')}", "w") as file:
        file.write("secret")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    time.sleep(3600)


if __name__ == "__main__":
    main()
