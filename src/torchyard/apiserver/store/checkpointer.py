"""SQLite's write-ahead log, moved into the database beside the writers.

A checkpoint that runs beside writers never covers their newest changes, so the log would grow for ever. After each
checkpoint the next writer therefore restarts the log: it moves the rest and begins at the start of the file again.
"""

from __future__ import annotations

import asyncio
import logging

from torchyard.apiserver.store.log import Log

logger = logging.getLogger(__name__)


class Checkpointer:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._bytes = 0  # written since the last checkpoint
        self._checkpoint: asyncio.Future[None] | None = None
        self.is_restart_due = False  # all but the newest changes are in the database

    def committed(self, size: int, *, limit: int) -> None:
        """Count committed bytes; beyond `limit` of them, start a checkpoint in a thread."""
        self._bytes += size
        if self._bytes > limit and self._checkpoint is None:
            self._bytes = 0
            self._checkpoint = asyncio.get_running_loop().run_in_executor(None, self._log.checkpoint)
            self._checkpoint.add_done_callback(self._finished)

    def _finished(self, checkpoint: asyncio.Future[None]) -> None:
        self._checkpoint = None
        if checkpoint.cancelled():
            return
        if (error := checkpoint.exception()) is not None:
            logger.warning("store checkpoint failed, will retry: error=%s", error)
        else:
            self.is_restart_due = True

    async def restart_log(self) -> None:
        """Begin the write-ahead log anew. The caller writes nothing meanwhile; reads and watches go on."""
        try:
            is_restarted = await asyncio.get_running_loop().run_in_executor(None, self._log.restart_wal)
        except Exception as error:
            logger.warning("store log restart failed, will retry: error=%s", error)
        else:
            self.is_restart_due = not is_restarted

    async def close(self) -> None:
        if self._checkpoint is not None:
            await asyncio.wait([self._checkpoint])
