"""Starts a container's first process, or a further one beside it, from the shim's point of view a fork and an exec.

A launch is the plain dict the agent wrote down before it asked for the start. Everything between fork and exec lives
here; a failure there is told through a pipe that a successful exec closes.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import sys
import termios
import traceback
from typing import Any, NoReturn

from torchyard.node.shim import linux, rootfs
from torchyard.node.shim.socket_server import close_others

Launch = dict[str, Any]

# As container runtimes number a process that could not be started at all.
NOT_FOUND, NOT_EXECUTABLE, START_FAILED = 127, 126, 128
_SYS_ADMIN = 21


class ChildProcess:
    """A process on its way: its pid, the pipe that tells of failure, and sockets that bring files.

    They are its terminal, if it has one, and for a container with a root of its own the machine's root to let go of.
    """

    def __init__(self, pid: int, failure: int, terminal: socket.socket | None) -> None:
        self.pid, self.failure, self.terminal = pid, failure, terminal
        self.machine: socket.socket | None = None


def start(launch: Launch, stdio: tuple[int, int, int] | None) -> ChildProcess:
    """Start the container itself: pid 1 of its own namespaces, or a plain process in its own session."""
    failure_read, failure_write = os.pipe2(os.O_CLOEXEC)
    terminals = socket.socketpair() if stdio is None else None
    sandboxed = launch["root"] is not None
    near, far = socket.socketpair()
    pid = linux.clone(linux.NEWNS | linux.NEWPID) if sandboxed else os.fork()
    if pid == 0:
        try:
            _join_groups(launch)
            if sandboxed:
                machine = rootfs.build(launch["root_directory"], launch["root"], read_only=launch["read_only_root"])
                if _may_unmount(launch):
                    rootfs.forget_machine(machine)
                else:
                    socket.send_fds(far, [b"m"], [machine])
                os.close(machine)
            _become_and_exec(launch, launch["argv"], stdio, terminals)
        except BaseException as failed:  # the forked child must end here whatever happened
            _report(failure_write, failed, launch["argv"])
    far.close()
    started = _parent_side(pid, failure_read, failure_write, terminals)
    started.machine = near
    return started


def _may_unmount(launch: Launch) -> bool:
    """Whether the container will have the power to uncover what lies below a mount."""
    return bool(launch["privileged"]) or _SYS_ADMIN in launch["capabilities"]


def let_go_of_machine(pid: int, giver: socket.socket) -> None:
    """Take the machine's root out of a container that runs already, in the background."""
    with giver:
        _, files, _, _ = socket.recv_fds(giver, 1, 1, socket.MSG_CMSG_CLOEXEC)
    if files and os.fork() == 0:
        try:
            close_others(files)  # the shim's lock above all
            linux.setns(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC), linux.NEWNS)
            rootfs.forget_machine(files[0])
        except FileNotFoundError:
            pass  # the container has ended, and its mounts with it
        except BaseException:  # the forked child must end here whatever happened
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(0)
    for descriptor in files:
        os.close(descriptor)


def start_beside(
    launch: Launch, container_pid: int, request: dict[str, Any], stdio: tuple[int, int, int] | None
) -> ChildProcess:
    """Start a further process in the namespaces of a running container (exec, hooks, exec probes)."""
    failure_read, failure_write = os.pipe2(os.O_CLOEXEC)
    terminals = socket.socketpair() if stdio is None else None
    if "enter" in launch:
        # an engine's container: its client leads inside
        *command, tag = launch["enter"]
        flags = ["--interactive", *(["--tty"] if stdio is None else [])]
        request = {**request, "argv": [*command, *flags, tag, *request["argv"]]}
    told_read, told_write = os.pipe2(os.O_CLOEXEC)
    entered = os.fork()
    if entered == 0:
        try:
            if request["argv"][0] == "tar":
                # after the change of root there may be no Python left to import it from
                import torchyard.node.shim.tar  # noqa: F401
            _join_groups(launch)
            if launch["root"] is not None:
                _enter(container_pid)
            pid = linux.clone(0, to_parent=True)
            if pid:
                os.write(told_write, str(pid).encode())
                os._exit(0)
            merged = {**launch, "env": {**launch["env"], **request.get("env", {})}}
            _become_and_exec(merged, request["argv"], stdio, terminals)
        except BaseException as failed:  # as above
            _report(failure_write, failed, request["argv"])
    os.close(told_write)
    told = os.read(told_read, 32)
    os.close(told_read)
    # without a second pid the first process failed, and its own end is the exec's end
    return _parent_side(int(told) if told else entered, failure_read, failure_write, terminals)


def _parent_side(
    pid: int, failure_read: int, failure_write: int, terminals: tuple[socket.socket, socket.socket] | None
) -> ChildProcess:
    os.close(failure_write)
    terminal = None
    if terminals:
        terminal = terminals[0]
        terminals[1].close()
    return ChildProcess(pid, failure_read, terminal)


def _enter(container_pid: int) -> None:
    namespaces = [
        (os.open(f"/proc/{container_pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), kind) for name, kind in _NAMESPACES
    ]
    for descriptor, kind in namespaces:
        linux.setns(descriptor, kind)


_NAMESPACES = (("pid", linux.NEWPID), ("mnt", linux.NEWNS))


def _join_groups(launch: Launch) -> None:
    for path in launch["cgroups"]:
        descriptor = os.open(f"{path}/cgroup.procs", os.O_WRONLY)
        os.write(descriptor, b"0")
        os.close(descriptor)


def _become_and_exec(
    launch: Launch,
    argv: list[str],
    stdio: tuple[int, int, int] | None,
    terminals: tuple[socket.socket, socket.socket] | None,
) -> NoReturn:
    os.setsid()
    if terminals:
        near = _open_terminal(terminals[1], launch.get("size"))
        stdio = (near, near, near)
    assert stdio is not None
    kept = [os.dup(descriptor) for descriptor in stdio]
    for number, descriptor in enumerate(kept):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if terminals:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    if launch["root"] is not None:
        os.makedirs(launch["cwd"], exist_ok=True)
    os.chdir(launch["cwd"])
    os.umask(0o022)
    _take_identity(launch)
    # last of all: a change of identity clears it
    linux.die_with_parent()
    _exec(argv, launch["env"])


def _open_terminal(give_to: socket.socket, size: dict[str, int] | None) -> int:
    """A terminal of the container's own, its far end handed to the shim."""
    try:
        far = os.open("/dev/pts/ptmx", os.O_RDWR | os.O_NOCTTY)
        fcntl.ioctl(far, 0x40045431, struct.pack("i", 0))  # TIOCSPTLCK: unlock
        number = struct.unpack("I", fcntl.ioctl(far, 0x80045430, b"\0" * 4))[0]  # TIOCGPTN
        near = os.open(f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        far, near = os.openpty()
    if size:
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", size["rows"], size["columns"], 0, 0))
    socket.send_fds(give_to, [b"t"], [far])
    os.close(far)
    return near


def _take_identity(launch: Launch) -> None:
    user = launch["user"]
    uid, gid = user["uid"], user["gid"]
    if launch["root"] is None:
        if os.geteuid() == 0 and (uid or gid):
            os.setgroups(user["groups"])
            os.setgid(gid)
            os.setuid(uid)
        return
    if not launch["privileged"]:
        # before the change of user, which gives away the power to do so; a program with the setuid bit minds it later
        linux.bound_capabilities(launch["capabilities"])
    if uid or gid:
        try:
            os.setgroups(user["groups"])
            os.setgid(gid)
            os.setuid(uid)
        except OSError:
            # an ordinary user has one identity only, but may go by another number
            linux.rename_identity(uid, gid)
    if launch["no_new_privileges"]:
        linux.forbid_new_privileges()


def _exec(argv: list[str], env: dict[str, str]) -> NoReturn:
    program = argv[0]
    if program == "tar" and linux.is_alone():
        # kubectl cp: it would try to give files to the user who had them elsewhere, and fail
        env = {"TAR_OPTIONS": "--no-same-owner", **env}
    if "/" in program:
        os.execve(program, argv, env)  # noqa: S606 - this is what a container runtime is for
    blocked: OSError | None = None
    for directory in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(f"{directory}/{program}", argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as denied:
            blocked = denied
    if program == "tar":
        from torchyard.node.shim import tar

        # nothing is exec'd that would close the pipe on which success is told
        os.closerange(3, 4096)
        os._exit(tar.main(argv))
    raise blocked or FileNotFoundError(2, "executable file not found in $PATH")


def _report(pipe: int, failed: BaseException, argv: list[str]) -> NoReturn:
    code, text = START_FAILED, f"{failed}"
    if isinstance(failed, OSError) and failed.args and not text.startswith(("[Errno 2] mount", "[Errno 1] mount")):
        said = {2: "no such file or directory", 13: "permission denied", 8: "exec format error"}
        number = failed.errno or 0
        if "$PATH" in text:
            code, text = NOT_FOUND, f'exec: "{argv[0]}": executable file not found in $PATH'
        elif number in said and failed.filename == argv[0]:
            code = NOT_FOUND if number == 2 else NOT_EXECUTABLE
            text = f'exec: "{argv[0]}": {"stat " + argv[0] + ": " if number == 2 else ""}{said[number]}'
    os.write(pipe, json.dumps({"code": code, "message": text}).encode())
    os._exit(code)
