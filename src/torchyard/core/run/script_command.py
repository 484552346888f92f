"""The command of the pods of a script: an init process, which starts a shell, which unpacks the files and runs it."""

from __future__ import annotations

from torchyard.api.objects import Object

ARCHIVE = "workspace.tar.gz"
WORKSPACE = "/workspace"
ARCHIVE_MOUNT = "/run/torchyard/workspace"
REQUIREMENTS = ".torchyard-requirements.txt"
# Where a pod finds the packages that its image lacks.
PACKAGES = "/run/torchyard/packages"
# The kernel drops signals for which the first process of a container has no handler, as a Python program has none for
# SIGTERM: a job that is stopped would train on until its grace period ends. So the first process is this one. It passes
# signals on to the program, for which they are what they are outside of containers, and reaps orphans.
# It waits for signals that it blocks: they stay pending, and none is lost before the program is started.
INIT = """
import os, signal, sys
passed = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM}
before = signal.pthread_sigmask(signal.SIG_BLOCK, passed | {signal.SIGCHLD})
program = os.fork()
if not program:
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # Python has changed them
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as error:
        os.write(2, f"{sys.argv[1]}: {error.strerror}\\n".encode())
        os._exit(127)
while True:
    number = signal.sigwait(passed | {signal.SIGCHLD})
    if number != signal.SIGCHLD:
        os.kill(program, number)
        continue
    ended = True
    while ended:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == program:
            os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
""".strip()
_EXEC = 'exec "$@"'
# The parts in order; then, where the client could not, the packages that the image lacks.
_UNPACK = (
    f"cat {ARCHIVE_MOUNT}/{ARCHIVE}* | tar -xzf - -C {WORKSPACE} && cd {WORKSPACE} && "
    f"{{ [ ! -f {REQUIREMENTS} ] || python -m pip install --quiet --disable-pip-version-check -r {REQUIREMENTS}; }}"
    f" && {{ [ ! -d {PACKAGES} ] || export PYTHONPATH={PACKAGES}${{PYTHONPATH:+:$PYTHONPATH}}; }} && "
)
_INIT_WORDS = ["python", "-I", "-S", "-c", INIT]
_SHELL_WORDS = 4  # sh -c SCRIPT sh


def script_command(program: list[str], *, prepare: str = "") -> list[str]:
    """The command that runs a program among the unpacked files. `prepare` is a shell command before it."""
    script = f"{_UNPACK}{prepare} && {_EXEC}" if prepare else f"{_UNPACK}{_EXEC}"
    return [*_INIT_WORDS, "sh", "-c", script, "sh", *program]


def split_command(command: list[str]) -> tuple[list[str], list[str]]:
    """What unpacks the files of a script, empty for other commands, and the program."""
    # Jobs of earlier versions have no init process.
    start = len(_INIT_WORDS) if command[: len(_INIT_WORDS)] == _INIT_WORDS else 0
    shell = command[start : start + _SHELL_WORDS]
    if shell[:2] == ["sh", "-c"] and len(shell) == _SHELL_WORDS and shell[2].startswith(_UNPACK):
        return command[: start + _SHELL_WORDS], command[start + _SHELL_WORDS :]
    return [], command


def program_of(container: Object) -> list[str]:
    """The command line of a container, without what unpacks the files of a script."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return split_command(words)[1]
