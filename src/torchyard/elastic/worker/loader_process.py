"""A process that loads micro-batches, with random generators of its own.

It is forked from the worker before the worker connects, so that it has the program's dataset and none of its sockets.
Requests and batches travel over a pipe between parent and child: nothing else can write to it, so pickle is safe here.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any

import torch

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.parent_death import die_with_parent
from torchyard.elastic.world.state import raw_bytes

Load = Callable[[int, int], Any]


class LoaderProcess:
    """One loading process.

    Args:
        load: loads the micro-batch of a step and a number; it runs in the process.
        on_start: called once in the process, before the first load.
    """

    def __init__(self, load: Load, on_start: Callable[[], None] | None = None) -> None:
        self._connection, child_end = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        worker = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._connection.close()
            _serve(child_end, load, on_start, worker=worker)
        child_end.close()

    def load(self, step: int, micro: int) -> Any:
        """Return a micro-batch, or raise what its loading raised."""
        try:
            self._connection.send_bytes(pickle.dumps((step, micro)))
            loaded, result = pickle.loads(self._connection.recv_bytes())  # noqa: S301  # from this worker's own child
        except (EOFError, OSError) as error:
            raise ElasticError(
                "LoaderDied",
                f"the loading process {self.pid} ended while it loaded micro-batch {micro} of step {step}",
                hint="check the memory of the machine; use fewer loaders, or loaders=0 to load in the worker",
            ) from error
        if not loaded:
            raise result
        return result

    def close(self) -> None:
        self._connection.close()
        with_status = os.waitpid(self.pid, os.WNOHANG)
        if with_status[0] == 0:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _serve(connection: Connection, load: Load, on_start: Callable[[], None] | None, *, worker: int) -> None:
    code = 1
    try:
        die_with_parent(worker)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        torch.set_num_threads(1)  # threads do not survive a fork
        if on_start is not None:
            on_start()
        while True:
            step, micro = pickle.loads(connection.recv_bytes())  # noqa: S301  # from the parent
            connection.send_bytes(_reply(load, step, micro))
    except (EOFError, OSError):
        code = 0  # the worker has ended
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _reply(load: Load, step: int, micro: int) -> bytes:
    try:
        return _dump((True, load(step, micro)))
    except Exception as error:  # the worker raises it
        error.add_note("".join(traceback.format_exception(error)))
        try:
            return _dump((False, error))
        except Exception:
            return _dump((False, RuntimeError(f"{type(error).__name__}: {error}")))


class _BatchPickler(pickle.Pickler):
    """Writes tensors as their bytes: torch's own form carries a whole archive for each of them."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and value.layout is torch.strided and not value.requires_grad:
            return _tensor, (bytes(raw_bytes(value)), value.dtype, tuple(value.shape))
        return NotImplemented


def _dump(value: Any) -> bytes:
    buffer = io.BytesIO()
    _BatchPickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def _tensor(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)
