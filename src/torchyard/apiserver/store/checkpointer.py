"""SQLite's write-ahead log, moved into the database beside the writers.

A checkpoint that runs beside writers never covers their newest changes, so the log would grow for ever. After each
checkpoint the next writer therefore restarts the log: it moves the rest and begins at the start of the file again.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor

from torchyard.apiserver.store.log import Log

logger = logging.getLogger(__name__)


# What SQLite writes into the log besides the rows: whole pages. A transaction changes a few, and each row one of the
# index.
_PAGE = 4096
_PAGES_PER_TRANSACTION, _PAGES_PER_ROW = 3, 1


class Checkpointer:
    def __init__(self, log: Log, threads: Executor) -> None:
        self._log, self._threads = log, threads
        # About how long the log is. An earlier process may have been killed before its first checkpoint.
        self._bytes = log.wal_bytes()
        self._checkpoint: asyncio.Future[None] | None = None
        self.is_restart_due = False  # all but the newest changes are in the database

    def committed(self, rows: int, size: int, *, limit: int) -> None:
        """Count a transaction of `rows` with `size` bytes; a log beyond `limit` is checkpointed in a thread."""
        self._bytes += size + (_PAGES_PER_TRANSACTION + rows * _PAGES_PER_ROW) * _PAGE
        if self._bytes > limit and self._checkpoint is None:
            self._bytes = 0
            self._checkpoint = asyncio.get_running_loop().run_in_executor(self._threads, self._log.checkpoint)
            self._checkpoint.add_done_callback(self._finished)

    @property
    def is_running(self) -> bool:
        return self._checkpoint is not None

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
            is_restarted = await asyncio.get_running_loop().run_in_executor(self._threads, self._log.restart_wal)
        except Exception as error:
            logger.warning("store log restart failed, will retry: error=%s", error)
        else:
            self.is_restart_due = not is_restarted

    async def close(self) -> None:
        if self._checkpoint is not None:
            await asyncio.wait([self._checkpoint])
