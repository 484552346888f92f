"""The signals of a worker."""

from __future__ import annotations

import faulthandler
import signal
import threading
from typing import Any

from torchyard.elastic.world.runtime import WorkerRuntime


def leave_on_sigterm(runtime: WorkerRuntime) -> None:
    """On SIGTERM, hand over at the next step boundary and exit with 0. On SIGUSR1, print the stacks of all threads."""

    def leave(number: int, frame: Any) -> None:
        if runtime.client is not None:
            # In a thread: the interrupted thread may be sending, and would wait for itself.
            reason = "it got SIGTERM"
            threading.Thread(target=runtime.client.leave, args=(reason,), name="elastic-leave", daemon=True).start()

    signal.signal(signal.SIGTERM, leave)
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the agent sends it to a hung worker
