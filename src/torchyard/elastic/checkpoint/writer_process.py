"""The writer process of a worker, as the worker sees it: requests, replies, and what to do when the process ends.

A full disk is a reply, not the end of the process. A process that ends is replaced, and what it had not saved is
reported. A staged state is not overwritten before the process has read it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import torch

if TYPE_CHECKING:  # at run time it would import DCP, which only the writer process needs
    from torchyard.elastic.checkpoint.writer import SaveReply, SaveRequest

CONTINUE_EVERY = 1.0
"""How often a process that may be stopped is told to continue while the worker waits for it."""


def _search_path() -> str:
    """Return a PYTHONPATH with this package and torch, also if a relative one no longer leads to them after a chdir."""
    roots = [Path(__file__).parents[3], Path(torch.__file__).parents[1]]
    earlier = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([*([earlier] if earlier else []), *(str(root.absolute()) for root in roots)])


class CheckpointWriter:
    """Saves checkpoints in a process of its own.

    Args:
        on_reply: called in a thread with the outcome of every request.
    """

    def __init__(self, on_reply: Callable[[SaveReply], None]) -> None:
        self._on_reply = on_reply
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._unread: dict[str, int] = {}
        self._unsaved: dict[int, SaveRequest] = {}
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start the process if it does not run: it takes seconds to import torch."""
        if self._process is not None and self._process.poll() is None:
            return
        self._join()
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "torchyard.elastic.checkpoint.writer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": _search_path()},
            start_new_session=True,
        )
        assert process.stdout is not None
        self._reader = threading.Thread(
            target=self._read_replies, args=(process, process.stdout), name="elastic-saved", daemon=True
        )
        self._reader.start()

    def send(self, request: SaveRequest) -> None:
        """Save a staged state; the reply says whether it was saved."""
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        with self._changed:
            self._unread[request["staged"]] = request["step"]
            self._unsaved[request["step"]] = request
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # the process has ended: the thread that reads its replies reports what it has not saved

    def wait_until_read(self, staged: str) -> None:
        """Wait until the process has read a staged state, or has ended."""
        with self._changed:
            while staged in self._unread:
                self._continue()
                self._changed.wait(CONTINUE_EVERY)

    def wait_until_saved(self) -> None:
        """Wait until every request was answered; the process stays for further ones."""
        with self._changed:
            while self._unsaved:
                self._continue()
                self._changed.wait(CONTINUE_EVERY)

    def _read_replies(self, process: subprocess.Popen[str], replies: IO[str]) -> None:
        for line in replies:
            reply: SaveReply = json.loads(line)
            with self._changed:
                self._unread = {path: step for path, step in self._unread.items() if step != reply["step"]}
                self._changed.notify_all()
            if not reply["read"]:
                self._answer(reply)
        code = process.wait()
        error = f"the writer process ended with code {code}"
        with self._changed:
            unsaved, self._unread = list(self._unsaved), {}
            self._changed.notify_all()
        for step in unsaved:
            self._answer({"step": step, "path": "", "sha256": "", "error": error, "read": False})

    def _answer(self, reply: SaveReply) -> None:
        """Report a reply; only then nothing waits for it any more."""
        try:
            self._on_reply(reply)
        finally:
            with self._changed:
                self._unsaved.pop(reply["step"], None)
                self._changed.notify_all()

    def _continue(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGCONT)

    def _join(self) -> None:
        while self._reader is not None and self._reader.is_alive():
            self._continue()
            self._reader.join(CONTINUE_EVERY)

    def close(self) -> None:
        """Wait until everything is saved or has failed."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):
            process.stdin.close()
        self._join()
        process.stdout.close()
        process.wait()
        self._process = None
