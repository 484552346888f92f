"""A user namespace of the pod's own, whose ids are a range that no other pod has.

The shim enters the namespace and stays the machine's user in it: it owns the files of the pod's directory. Containers
become root of the namespace before they build their root. A namespace cannot fill its own map with a range: the zygote
does, once the shim has a pod and the range is known.
"""

from __future__ import annotations

import _thread
import os
from typing import TYPE_CHECKING

from torchyard.node.shim import linux

if TYPE_CHECKING:
    from collections.abc import Mapping

COUNT = 65536  # ids of a pod


def become_root() -> None:
    """Become root of the pod's user namespace. There is no way back: the machine's ids have no number in it."""
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def enter_ipc_namespace(sysctls: Mapping[str, str]) -> None:
    """A new IPC namespace with these sysctls. The directory of its message queues belongs to root of the pod.

    The directory belongs to the user who creates the namespace, and this process must not become root of the pod:
    one of its threads does, and ends. A child process could as well, but takes a hundred times as long.
    """
    namespaces: list[int] = []
    errors: list[OSError] = []
    done = _thread.allocate_lock()

    def create() -> None:
        try:
            linux.set_thread_ids(0, 0)
            linux.unshare(linux.NEWIPC)
            for name, value in sysctls.items():
                with open(f"/proc/sys/{name.replace('.', '/')}", "w") as file:
                    file.write(value)
            namespaces.append(os.open("/proc/thread-self/ns/ipc", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            errors.append(error)
        finally:
            done.release()

    done.acquire()
    _thread.start_new_thread(create, ())
    done.acquire()
    if errors:
        raise errors[0]
    linux.setns(namespaces[0], linux.NEWIPC)
    os.close(namespaces[0])
    linux.set_dumpable(False)  # a change of ids, of one thread too, sets it to what the machine has for such processes
