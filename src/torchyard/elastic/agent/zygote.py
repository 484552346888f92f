"""A process with torch already imported, from which workers are forked in milliseconds instead of seconds.

It stays single-threaded and never touches a device. It forks on request and reports every exit; the agent makes all
decisions. Run as `python -m torchyard.elastic.agent.zygote FD` with one end of a socket pair.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from torchyard.elastic.agent.fork_messages import ForkRequest, ZygoteReply
from torchyard.elastic.parent_death import die_with_parent


def serve(channel: socket.socket) -> None:
    """Accept fork requests on `channel` until its other end closes."""
    try:
        _import_torch()
    except ImportError as error:
        sys.stderr.write(f"torch cannot be imported: interpreter={sys.executable} error={error}\n")
        return
    gc.freeze()  # memory in use now is shared with every child: their collectors must not copy its pages
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    _reply(channel, {"type": "ready", "pid": os.getpid()})
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
            _fork(channel, json.loads(request), fds)


def _import_torch() -> None:
    """Import what every worker needs, so that a forked worker does not have to."""
    import torch.distributed

    import torchyard.elastic.api  # noqa: F401

    # The first optimizer of a process imports torch's compiler, which takes as long as torch itself.
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1).zero_grad()


def _reply(channel: socket.socket, message: ZygoteReply) -> None:
    channel.send(json.dumps(message).encode())


def _reap(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _reply(channel, {"type": "exited", "pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _fork(channel: socket.socket, request: ForkRequest, fds: list[int]) -> None:
    zygote = os.getpid()
    pid = os.fork()
    if pid:
        for number in fds:
            os.close(number)
        _reply(channel, {"type": "forked", "name": request["name"], "pid": pid})
        return
    code = 1
    try:
        die_with_parent(zygote)
        channel.close()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(fds[0], 1)
        os.dup2(fds[1], 2)
        code = _run_program(request)
        _run_exit_handlers()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run_exit_handlers() -> None:
    """Do what the interpreter does at the end of a program: wait for its threads, and call its exit handlers."""
    threading._shutdown()  # type: ignore[attr-defined]  # `os._exit` skips it
    atexit._run_exitfuncs()


def _run_program(request: ForkRequest) -> int:
    """Run the worker's program as `python PROGRAM` or `python -m MODULE` does, and return its exit code."""
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
    except SystemExit as exit_request:
        if exit_request.code:
            sys.last_value = exit_request  # exit handlers see that the program failed
        if isinstance(exit_request.code, str):
            sys.stderr.write(exit_request.code + "\n")
            return 1
        return int(exit_request.code or 0)
    except BaseException as error:
        sys.last_value = error
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    die_with_parent()
    with socket.socket(fileno=int(sys.argv[1])) as spawner:
        serve(spawner)
