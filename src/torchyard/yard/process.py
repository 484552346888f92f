"""The plane as a process: in the foreground, detached, stopped, inspected."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from torchyard.api.errors import YardError
from torchyard.kube.log_limit import limit_repeated_lines
from torchyard.kube.process import prefer_uvloop, tune_garbage_collector
from torchyard.yard.lock import AlreadyRunning, PlaneProcess, running
from torchyard.yard.open_files import raise_open_file_limit
from torchyard.yard.settings import PlaneSettings, ensure_state_directory

# The first garbage collection of a new plane: not while its first client waits.
GC_DELAY_SECONDS = 2.0
STOP_SECONDS = 20.0
ANSWER_SECONDS = 5.0
# The signal of `yard down`: stop, and leave the pods to the sender.
LEAVE_PODS = signal.SIGUSR1
_READY = "YARD_READY_FD"  # a detached plane reports through this file descriptor that it serves


def run(settings: PlaneSettings, ready: Callable[[str], None]) -> int:
    """Run the plane until it receives a signal; returns how many pods were stopped with it.

    `ready` is called with the URL once the plane serves.
    """
    gc.disable()  # until `calm_collector`: objects created during the start are long-lived
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
    plane = Plane(settings)

    def on_signal(which: signal.Signals) -> None:
        for handled in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(handled)
            signal.signal(handled, signal.SIG_DFL)  # a second signal ends the process at once
        plane.stops_pods = not settings.keep_pods and which != LEAVE_PODS
        stop.set()

    for handled in (signal.SIGINT, signal.SIGTERM, LEAVE_PODS):
        loop.add_signal_handler(handled, on_signal, handled)
    async with plane:
        loop.call_later(GC_DELAY_SECONDS, tune_garbage_collector)
        ready(plane.url)
        _notify_parent(plane.url)
        stopped, failed = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(plane.failed())
        await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if failed.done():
            failed.result()
        failed.cancel()
    return plane.stopped_pods


def _notify_parent(url: str) -> None:
    descriptor = os.environ.pop(_READY, "")
    if descriptor:
        with contextlib.suppress(OSError):
            os.write(int(descriptor), url.encode())
            os.close(int(descriptor))


def start_detached(settings: PlaneSettings) -> PlaneProcess:
    """Start the plane in the background; returns once it serves, or raises the reason why it does not."""
    holder = running(settings.lock)
    if holder is not None:
        raise AlreadyRunning(settings.state, holder)
    ensure_state_directory(settings.state)
    reader, writer = os.pipe()
    descriptor = os.open(settings.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    log_size = os.fstat(descriptor).st_size
    command = [sys.executable, "-m", "torchyard.cli", "up", *_arguments(settings)]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=descriptor,
        stderr=descriptor,
        start_new_session=True,
        pass_fds=(writer,),
        env={**os.environ, _READY: str(writer)},
    )
    os.close(writer)
    os.close(descriptor)
    with os.fdopen(reader, "rb") as pipe:
        url = pipe.read().decode()
    if not url:
        child.wait(STOP_SECONDS)
        raise _start_error(settings.log, log_size)
    return PlaneProcess(child.pid, url)


def _arguments(settings: PlaneSettings) -> list[str]:
    arguments = ["--state", str(settings.state), "--host", settings.host, "--port", str(settings.port)]
    arguments += ["--fsync", settings.fsync, "--controllers", settings.controllers]
    arguments += ["--watchdog-threshold", str(settings.watchdog_threshold)]
    arguments += ["--max-connections", str(settings.max_connections)]
    arguments += ["--node" if settings.node else "--no-node", "--python", settings.python]
    arguments += ["--node-name", settings.node_name, "--assume-gpu-product", settings.gpu_product]
    arguments += ["--local-queues" if settings.local_queues else "--no-local-queues"]
    arguments += ["--engine"] if settings.engine else []
    arguments += ["--pod-pids-limit", str(settings.pod_pids_limit)] if settings.pod_pids_limit is not None else []
    arguments += ["--keep-pods"] if settings.keep_pods else []
    if settings.queue_config is not None:
        arguments += ["--queue-config", str(settings.queue_config)]
    if settings.token_auth_file is not None:
        arguments += ["--token-auth-file", str(settings.token_auth_file)]
    return arguments


def _start_error(log: Path, log_size: int) -> YardError:
    """The error of a plane that did not start, from the new part of its log: its error and hint, or its last line."""
    lines = [line for line in log.read_bytes()[log_size:].decode(errors="replace").splitlines() if line.strip()]
    begin = max((number for number, line in enumerate(lines) if line.startswith("error: ")), default=None)
    if begin is not None:
        error, _, hint = "\n".join(lines[begin:]).partition("\nhint: ")
        return YardError(error.removeprefix("error: "), hint=hint.partition("\n")[0] or f"see {log}")
    last = lines[-1] if lines else "its log is empty"
    return YardError(f"the plane did not start: {last}", hint=f"see {log}")


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
            )
        time.sleep(0.02)
    return holder.pid


def stop_pods(state: Path) -> int:
    """Stop the pods of a stopped plane; returns how many ran."""
    from torchyard.node.shutdown import stop_pods as stop_all

    return asyncio.run(stop_all(state / "node"))


def inspect(state: Path) -> dict[str, str] | None:
    """What `yard status` reports about a running plane; None if there is none."""
    settings = PlaneSettings(state=state)
    holder = running(settings.lock)
    if holder is None:
        return None
    return {
        "state": str(state),
        "process": str(holder.pid),
        "address": holder.url or "starting",
        "since": holder.started or "starting",
        "kubeconfig": str(settings.kubeconfig),
        "store": f"{_size(settings.database) / 1e6:.1f} MB",
        **({"node": asyncio.run(_node(settings, holder.node))} if holder.node else {}),
    }


async def _node(settings: PlaneSettings, name: str) -> str:
    """The state of the node. Like a kubelet, it does not register again when its object is deleted."""
    from torchyard.api.gvr import NODES
    from torchyard.core.node.health import ready_status
    from torchyard.kube.connect import open_client
    from torchyard.kube.kubeconfig import load

    try:
        async with asyncio.timeout(ANSWER_SECONDS), open_client(load(settings.kubeconfig), "yard") as client:
            node = await client.find(NODES, name)
    except (YardError, TimeoutError) as error:
        return f"{name}; state unknown: {str(error) or 'the plane does not respond'}"
    if node is None:
        return f"{name}, not registered; if it was deleted, `yard down --keep-pods` and `yard up` register it again"
    return f"{name}, {'ready' if ready_status(node) == 'True' else 'not ready'}"


def _size(database: Path) -> int:
    """The size of a store in bytes, with its write-ahead log."""
    parts = (database, database.with_name(f"{database.name}-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())
