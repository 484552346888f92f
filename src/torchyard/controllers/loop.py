"""The loop every controller runs in: keys from informers, one reconcile per key at a time, retries with pauses."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar

from torchyard.api.errors import StatusError, YardError
from torchyard.kube.informer import Informer, Key
from torchyard.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

# Of the reconciliation under way, for logs.
reconcile_id: ContextVar[str] = ContextVar("reconcile_id", default="")

# Works on one key; answers after how many seconds it wants to look again, or None.
Reconcile = Callable[[Key], Awaitable[float | None]]
Observe = Callable[[str, float], None]  # result, seconds


class Controller:
    """`run` until cancelled. Starts to work when its informers hold everything."""

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        informers: Sequence[Informer],
        *,
        workers: int = 4,
        observe: Observe = lambda _result, _seconds: None,
    ) -> None:
        self.name = name
        self.queue: WorkQueue[Key] = WorkQueue()
        self._reconcile = reconcile
        self._informers = informers
        self._workers = workers
        self._observe = observe

    async def run(self) -> None:
        try:
            await asyncio.gather(*(informer.synced.wait() for informer in self._informers))
            await asyncio.gather(*(self._work() for _ in range(self._workers)))
        finally:
            self.queue.close()

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            started, result = time.perf_counter(), "error"
            reconcile_id.set(uuid.uuid4().hex[:12])
            try:
                requeue_after = await self._reconcile(key)
            except StatusError as error:
                pause = self.queue.add_rate_limited(key)
                # Somebody else was faster: the informer will bring what they wrote.
                level = logging.DEBUG if error.status in (404, 409) else logging.WARNING
                log.log(level, "%s %s: %s; again in %.2f s", self.name, "/".join(key), error, pause)
            except YardError as error:
                log.warning(
                    "%s %s: %s; again in %.2f s", self.name, "/".join(key), error, self.queue.add_rate_limited(key)
                )
            except Exception:
                log.exception(
                    "%s %s failed; again in %.2f s", self.name, "/".join(key), self.queue.add_rate_limited(key)
                )
            else:
                result = "success" if requeue_after is None else "requeue_after"
                self.queue.forget(key)
                if requeue_after is not None:
                    self.queue.add_after(key, requeue_after)
            finally:
                self.queue.done(key)
                self._observe(result, time.perf_counter() - started)
