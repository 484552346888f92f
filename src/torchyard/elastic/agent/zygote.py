"""A process with torch already imported, from which workers are forked in milliseconds instead of seconds.

It stays single-threaded and never touches a device. It forks on request and tells who exited; it decides nothing.
Run as `python -m torchyard.elastic.agent.zygote FD` with one end of a socket pair.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Linux only: a worker must not outlive the agent that watches it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def serve(channel: socket.socket) -> None:
    _warm_up()
    gc.freeze()  # what is here already is shared with every child: keep their collectors from copying its pages
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    _tell(channel, {"ready": os.getpid()})
    watched: list[Any] = [channel, wake_read]
    while True:
        readable = select.select(watched, [], [])[0]
        if wake_read in readable:
            os.read(wake_read, 4096)
            _reap(channel)
        if channel in readable:
            request, fds, _, _ = socket.recv_fds(channel, 1 << 20, 2)
            if not request:
                return
            _spawn(channel, json.loads(request), fds)


def _warm_up() -> None:
    """Import what every worker needs: the point of this process."""
    import torch.distributed

    import torchyard.elastic.api  # noqa: F401

    # The first optimiser a process makes imports torch's compiler, which takes as long as torch itself.
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1).zero_grad()


def _tell(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.send(json.dumps(message).encode())


def _reap(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _tell(channel, {"exited": pid, "code": os.waitstatus_to_exitcode(status)})


def _spawn(channel: socket.socket, request: dict[str, Any], fds: list[int]) -> None:
    pid = os.fork()
    if pid:
        for number in fds:
            os.close(number)
        _tell(channel, {"started": request["name"], "pid": pid})
        return
    code = 1
    try:
        die_with_parent()
        channel.close()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(fds[0], 1)
        os.dup2(fds[1], 2)
        code = _become(request)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _become(request: dict[str, Any]) -> int:
    """Run the program as `python` itself would have."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    program, *arguments = request["argv"]
    sys.path[:] = [entry for entry in request["path"] if entry not in sys.path] + sys.path
    try:
        if program == "-m":
            module, *arguments = arguments
            sys.argv = [module, *arguments]
            sys.path.insert(0, request["cwd"])
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            sys.argv = [program, *arguments]
            sys.path.insert(0, str(Path(program).resolve().parent))
            runpy.run_path(program, run_name="__main__")
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            sys.stderr.write(leaving.code + "\n")
            return 1
        return int(leaving.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    die_with_parent()
    with socket.socket(fileno=int(sys.argv[1])) as end:
        serve(end)
