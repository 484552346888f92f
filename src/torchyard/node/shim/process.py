"""Starts the processes of a container: the init process, and exec processes beside it (as containerd calls them).

To the shim each is a fork and an exec. Everything between the two is here; a failure there is reported through a
pipe that a successful exec closes.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import termios
import traceback
from typing import TYPE_CHECKING, NoReturn

from torchyard.node.shim import beneath, linux, mount_sources, pids, rootfs, shifted_ids, wire
from torchyard.node.shim.socket_server import close_inherited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchyard.node.shim.record_types import ContainerConfig, ExecRequest, StartFailure, TerminalSize

    Stdio = tuple[int, int, int]
    SocketPair = tuple[socket.socket, socket.socket]

# As container runtimes number a process that could not be started at all.
NOT_FOUND, NOT_EXECUTABLE, START_FAILED = 127, 126, 128
_SYS_ADMIN, _EINVAL = 21, 22


class ChildProcess:
    """A forked process that has not exec'd yet.

    `failure` is the pipe that reports why it cannot; `terminal` and `old_root` are sockets that bring open files: its
    terminal, if it has one, and for a container with a root of its own the machine's root, to be detached.
    """

    def __init__(self, pid: int, failure: int, terminal: socket.socket | None) -> None:
        self.pid, self.failure, self.terminal = pid, failure, terminal
        self.old_root: socket.socket | None = None


def start_init(config: ContainerConfig, stdio: Stdio | None, files: Sequence[int] = ()) -> ChildProcess:
    """Start the container itself: pid 1 of its own namespaces, or a plain process in its own session.

    `files` are the mounts that the config refers to.
    """
    failure_read, failure_write = os.pipe2(os.O_CLOEXEC)
    terminals = socket.socketpair() if stdio is None else None
    steps = config["root"]
    near, far = socket.socketpair()
    own_pids = linux.NEWPID if has_pid_namespace(config) else 0
    pid = linux.clone(linux.NEWNS | own_pids) if steps is not None else os.fork()
    if pid == 0:
        try:
            seccomp = _read_filter(config)
            _join_cgroups(config)
            if steps is not None:
                _unshare_cgroups()
                old_root = rootfs.build(config, steps, files)
                if _may_unmount(config):
                    rootfs.detach_old_root(old_root)
                else:
                    socket.send_fds(far, [b"m"], [old_root])
                os.close(old_root)
            _set_up_and_exec(config, config["argv"], config["env"], stdio, terminals, seccomp=seccomp)
        except BaseException as error:  # the forked child must end here whatever happened
            _report(failure_write, error, config["argv"])
    far.close()
    child = _parent_side(pid, failure_read, failure_write, terminals)
    child.old_root = near
    return child


def has_pid_namespace(config: ContainerConfig) -> bool:
    """Whether the kernel ends all processes of the container with its first one."""
    return config["root"] is not None and config.get("pid") != "NODE"


def _read_filter(config: ContainerConfig) -> bytes:
    """The program of the seccomp filter. Read before the change of root, which hides it."""
    if not config["seccomp"]:
        return b""
    with open(config["seccomp"], "rb") as file:
        return file.read()


def _may_unmount(config: ContainerConfig) -> bool:
    """Whether the container will have the capability to uncover what lies below a mount."""
    return config["privileged"] or _SYS_ADMIN in config["capabilities"]


def detach_old_root(pid: int, sender: socket.socket) -> None:
    """Unmount the machine's root in a container that runs already, in the background."""
    with sender:
        _, files = wire.receive_files(sender, 1, 1)
    try:
        pid_of_helper = os.fork() if files else -1
    except BlockingIOError:
        pid_of_helper = -1  # the pod is at its limit of processes; what it cannot unmount stays covered
    if pid_of_helper == 0:
        try:
            close_inherited(files)  # the shim's lock above all
            linux.setns(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC), linux.NEWNS)
            rootfs.detach_old_root(files[0])
        except FileNotFoundError:
            pass  # the container has ended, and its mounts with it
        except BaseException:  # the forked child must end here whatever happened
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(0)
    for descriptor in files:
        os.close(descriptor)


def start_exec(config: ContainerConfig, container_pid: int, request: ExecRequest, stdio: Stdio | None) -> ChildProcess:
    """Start a further process in the namespaces of a running container (exec, hooks, exec probes)."""
    failure_read, failure_write = os.pipe2(os.O_CLOEXEC)
    terminals = socket.socketpair() if stdio is None else None
    argv = request["argv"]
    if "enter" in config:
        # A container engine runs it: its own client enters the container.
        *command, name = config["enter"]
        flags = ["--interactive", *(["--tty"] if stdio is None else [])]
        argv = [*command, *flags, name, *argv]
    pid_read, pid_write = os.pipe2(os.O_CLOEXEC)
    first_pid = os.fork()
    if first_pid == 0:
        try:
            if argv[0] == "tar":
                # Imported now: after the change of root there may be no Python left to import it from.
                import torchyard.node.shim.tar  # noqa: F401
            seccomp = _read_filter(config)
            _join_cgroups(config)
            if config["root"] is not None:
                _enter_namespaces(config, container_pid)
            if config.get("shifted"):
                shifted_ids.become_root()
            pid = linux.clone(0, to_parent=True)
            if pid:
                os.write(pid_write, str(pid).encode())
                os._exit(0)
            env = {**config["env"], **request.get("env", {})}
            _set_up_and_exec(config, argv, env, stdio, terminals, seccomp=seccomp, size=request.get("size"))
        except BaseException as error:  # as above
            _report(failure_write, error, argv)
    os.close(pid_write)
    second_pid = os.read(pid_read, 32)
    os.close(pid_read)
    # Without a second pid the first process failed, and its own end is the end of the exec.
    return _parent_side(int(second_pid) if second_pid else first_pid, failure_read, failure_write, terminals)


def _parent_side(pid: int, failure_read: int, failure_write: int, terminals: SocketPair | None) -> ChildProcess:
    os.close(failure_write)
    terminal = None
    if terminals:
        terminal = terminals[0]
        terminals[1].close()
    return ChildProcess(pid, failure_read, terminal)


def _enter_namespaces(config: ContainerConfig, container_pid: int) -> None:
    namespaces = [
        (os.open(f"/proc/{container_pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), kind)
        for name, kind in _NAMESPACES
        if (name != "pid" or has_pid_namespace(config)) and os.path.exists(f"/proc/self/ns/{name}")
    ]
    for descriptor, kind in namespaces:
        linux.setns(descriptor, kind)


_NAMESPACES = (("pid", linux.NEWPID), ("cgroup", linux.NEWCGROUP), ("mnt", linux.NEWNS))


def _unshare_cgroups() -> None:
    """A cgroup namespace whose root is the container's own cgroup."""
    try:
        linux.unshare(linux.NEWCGROUP)
    except OSError as error:
        if error.errno != _EINVAL:  # a kernel without them
            raise


def _join_cgroups(config: ContainerConfig) -> None:
    for path in config["cgroups"]:
        pids.enter(path)


def _set_up_and_exec(
    config: ContainerConfig,
    argv: list[str],
    env: dict[str, str],
    stdio: Stdio | None,
    terminals: SocketPair | None,
    *,
    seccomp: bytes,
    size: TerminalSize | None = None,
) -> NoReturn:
    os.setsid()
    if terminals:
        terminal = _open_terminal(terminals[1], size)
        stdio = (terminal, terminal, terminal)
    assert stdio is not None
    copies = [os.dup(descriptor) for descriptor in stdio]
    for number, descriptor in enumerate(copies):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if terminals:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    _change_directory(config)
    os.umask(0o022)
    _set_user(config, seccomp)
    # Last of all: a change of user clears it.
    linux.die_with_parent()
    _exec(argv, env)


def _change_directory(config: ContainerConfig) -> None:
    """To the container's working directory, created if missing.

    No link in /proc to a file that this process has open is followed: that could be a directory of the machine.
    """
    if config["root"] is None:
        os.chdir(config["cwd"])
        return
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        directory = beneath.open_path(root, config["cwd"], in_root=True)
    except FileNotFoundError:
        directory = beneath.make_directories(root, config["cwd"], in_root=True)
    try:
        os.fchdir(directory)
    except NotADirectoryError:
        raise OSError(errno.ENOTDIR, f'chdir to cwd ("{config["cwd"]}") failed: not a directory') from None
    os.close(directory)
    os.close(root)


def _open_terminal(send_to: socket.socket, size: TerminalSize | None) -> int:
    """A terminal of the container's own; the shim receives its controlling end."""
    try:
        controller = os.open("/dev/pts/ptmx", os.O_RDWR | os.O_NOCTTY)
        fcntl.ioctl(controller, 0x40045431, struct.pack("i", 0))  # TIOCSPTLCK: unlock
        number = struct.unpack("I", fcntl.ioctl(controller, 0x80045430, b"\0" * 4))[0]  # TIOCGPTN
        terminal = os.open(f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        controller, terminal = os.openpty()
    if size:
        fcntl.ioctl(controller, termios.TIOCSWINSZ, struct.pack("HHHH", size["rows"], size["columns"], 0, 0))
    socket.send_fds(send_to, [b"t"], [controller])
    os.close(controller)
    return terminal


def _set_user(config: ContainerConfig, seccomp: bytes) -> None:
    """User, groups, capabilities and the seccomp filter, in the order in which each is still permitted."""
    user = config["user"]
    uid, gid = user["uid"], user["gid"]
    if config["root"] is None:
        if os.geteuid() == 0 and (uid or gid):
            os.setgroups(user["groups"])
            os.setgid(gid)
            os.setuid(uid)
        return
    try:
        os.setgroups(user["groups"])
        is_mapped = False
    except PermissionError:
        # An ordinary user has one identity only, but may map it to another number.
        is_mapped = bool(uid or gid)
        if is_mapped:
            linux.map_identity(uid, gid)
    if seccomp and not config["no_new_privileges"]:
        linux.install_seccomp_filter(seccomp)  # now: without no_new_privs it takes CAP_SYS_ADMIN
    if not config["privileged"]:
        # Before the change of user, which gives up the right to do so. It binds programs with the setuid bit later.
        linux.bound_capabilities(config["capabilities"])
    if not is_mapped and (uid or gid):
        os.setgid(gid)
        os.setuid(uid)
    if not config["privileged"]:
        linux.set_capabilities(() if uid else config["capabilities"])
    if config["no_new_privileges"]:
        linux.forbid_new_privileges()
        if seccomp:
            linux.install_seccomp_filter(seccomp)


def _exec(argv: list[str], env: dict[str, str]) -> NoReturn:
    program = argv[0]
    if program == "tar" and linux.has_single_id():
        # kubectl cp: tar would try to restore the files' owners, and fail
        env = {"TAR_OPTIONS": "--no-same-owner", **env}
    if "/" in program:
        os.execve(program, argv, env)  # noqa: S606 - this is what a container runtime is for
    denied: OSError | None = None
    for directory in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(f"{directory}/{program}", argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            denied = error
    if program == "tar":
        from torchyard.node.shim import tar

        # No exec closes the pipe that reports success, so it is closed here.
        os.closerange(3, 4096)
        os._exit(tar.main(argv))
    raise denied or FileNotFoundError(2, "executable file not found in $PATH")


_REASONS = {2: "no such file or directory", 13: "permission denied", 8: "exec format error"}


def _report(pipe: int, error: BaseException, argv: list[str]) -> NoReturn:
    code, text = START_FAILED, f"{error}"
    if isinstance(error, OSError) and error.args and not text.startswith(("[Errno 2] mount", "[Errno 1] mount")):
        number = error.errno or 0
        if "$PATH" in text:
            code, text = NOT_FOUND, f'exec: "{argv[0]}": executable file not found in $PATH'
        elif number in _REASONS and error.filename == argv[0]:
            code = NOT_FOUND if number == 2 else NOT_EXECUTABLE
            text = f'exec: "{argv[0]}": {"stat " + argv[0] + ": " if number == 2 else ""}{_REASONS[number]}'
    failure: StartFailure = {"code": code, "message": text}
    if isinstance(error, mount_sources.MountRefused):
        failure = {"code": code, "message": str(error.strerror), "refused": True}
    os.write(pipe, json.dumps(failure).encode())
    os._exit(code)
