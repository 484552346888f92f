"""The plane as a process: in the foreground, detached, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard import bytecode
from torchyard.api.errors import YardError
from torchyard.kube.log_limit import limit_repeated_lines
from torchyard.kube.process import prefer_uvloop, tune_garbage_collector
from torchyard.yard.lock import AlreadyRunning, PlaneProcess, running
from torchyard.yard.open_files import raise_open_file_limit
from torchyard.yard.settings import PlaneSettings, ensure_state_directory

if TYPE_CHECKING:
    from torchyard.yard.plane import Plane

# The first garbage collection of a new plane: not while its first client waits, nor while the caches of the controllers
# are filled with objects that stay.
GC_DELAY_SECONDS = 2.0
_MAX_SYNC_SECONDS = 60.0
STOP_SECONDS = 20.0
# The signal of `yard down`: stop, and leave the pods to the sender.
LEAVE_PODS = signal.SIGUSR1


def run(settings: PlaneSettings, ready: Callable[[str], None]) -> int:
    """Run the plane until it receives a signal; returns how many pods were stopped with it.

    `ready` is called with the URL once the plane serves, before its controllers and its node run.
    """
    gc.disable()  # until `tune_garbage_collector`: objects created during the start are long-lived
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    limit_repeated_lines()
    log_open_file_limit = raise_open_file_limit()
    prefer_uvloop()

    def on_ready(url: str) -> None:
        log_open_file_limit()
        ready(url)

    return asyncio.run(_run(settings, on_ready))


async def _run(settings: PlaneSettings, ready: Callable[[str], None]) -> int:
    from torchyard.yard.plane import Plane

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    plane = Plane(settings, on_ready=ready)

    def on_signal(which: signal.Signals) -> None:
        if stop.is_set():  # a closed terminal may send more than one SIGHUP
            return
        for handled in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(handled)
            signal.signal(handled, signal.SIG_DFL)  # a second signal ends the process at once
        plane.stops_pods = not settings.keep_pods and which != LEAVE_PODS
        stop.set()

    for handled in (signal.SIGINT, signal.SIGTERM, LEAVE_PODS):
        loop.add_signal_handler(handled, on_signal, handled)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup: the plane outlives its terminal
        loop.add_signal_handler(signal.SIGHUP, on_signal, signal.SIGHUP)
    async with plane:
        collector = asyncio.ensure_future(_start_garbage_collector(plane))
        loop.run_in_executor(None, bytecode.save)
        stopped, failed = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(plane.failed())
        await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        collector.cancel()
        if failed.done():
            failed.result()
        failed.cancel()
    return plane.stopped_pods


async def _start_garbage_collector(plane: Plane) -> None:
    await asyncio.sleep(GC_DELAY_SECONDS)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_MAX_SYNC_SECONDS):
            await plane.synced()
    tune_garbage_collector()


def start_detached(settings: PlaneSettings) -> PlaneProcess | Callable[[str], None]:
    """Fork a process for the plane. The process must have no other threads.

    In the caller's process: wait until the plane serves and return its process, or raise the reason why it does not
    serve. In the new process, whose output goes to the log: return the function to call with the URL once it serves.
    A fork does not load again what this process has loaded.
    """
    holder = running(settings.lock)
    if holder is not None:
        raise AlreadyRunning(settings.state, holder)
    ensure_state_directory(settings.state)
    reader, writer = os.pipe()
    log = os.open(settings.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    log_size = os.fstat(log).st_size
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _redirect_output(log, writer)
        return partial(_notify, writer)
    os.close(writer)
    os.close(log)
    with os.fdopen(reader, "rb") as pipe:
        url = pipe.readline().decode().strip()
    if not url:
        os.waitpid(pid, 0)  # it has closed the pipe, so it is about to end
        raise _start_error(settings.log, log_size)
    return PlaneProcess(pid, url)


def _redirect_output(log: int, writer: int) -> None:
    """Leave the terminal and the caller's files: only the log and the pipe to the caller stay open."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, descriptor)
    os.closerange(3, writer)
    os.closerange(writer + 1, os.sysconf("SC_OPEN_MAX"))


def _notify(writer: int, url: str) -> None:
    with contextlib.suppress(OSError):  # the caller may have been killed
        os.write(writer, f"{url}\n".encode())
    os.close(writer)


def _start_error(log: Path, log_size: int) -> YardError:
    """The error of a plane that did not start, from the new part of its log: its error and hint, or its last line."""
    lines = [line for line in log.read_bytes()[log_size:].decode(errors="replace").splitlines() if line.strip()]
    begin = max((number for number, line in enumerate(lines) if line.startswith("error: ")), default=None)
    if begin is not None:
        text, _, code = "\n".join(lines[begin:]).partition("\ncode: ")
        error, _, hint = text.partition("\nhint: ")
        hint = hint.partition("\n")[0] or f"see {log}"
        return YardError(error.removeprefix("error: "), hint=hint, code=code.partition("\n")[0] or None)
    last = lines[-1] if lines else "its log is empty"
    return YardError(f"the plane did not start: {last}", hint=f"see {log}", code="StartFailed")


def stop(state: Path) -> int:
    """Stop the plane of a state directory without its pods; returns its process id, or 0 if none ran."""
    settings = PlaneSettings(state=state)
    holder = running(settings.lock)
    if holder is None or not holder.pid:
        return 0
    os.kill(holder.pid, LEAVE_PODS)
    deadline = time.monotonic() + STOP_SECONDS
    while running(settings.lock) is not None:
        if time.monotonic() > deadline:
            raise YardError(
                f"process {holder.pid} did not stop within {STOP_SECONDS:.0f} s",
                hint=f"see {settings.log}; `kill -9 {holder.pid}` loses nothing that was acknowledged",
                code="StopFailed",
            )
        time.sleep(0.02)
    return holder.pid


def stop_pods(state: Path) -> int:
    """Stop the pods of a stopped plane; returns how many ran."""
    from torchyard.node.shutdown import stop_pods as stop_all

    return asyncio.run(stop_all(PlaneSettings(state=state).node_root))
