"""The loop that every controller runs: keys from informers, one reconcile per key at a time, retries with backoff.

The contract is controller-runtime's. An informer handler adds the key of the object that has to be looked at; a key
that is already queued is not added twice, and a key is never reconciled by two workers at once. `reconcile` reads the
caches, brings the world closer to the spec, and returns None, or the seconds after which it wants to be called again.
An exception means a retry with exponential backoff.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar

from torchyard.api.errors import StatusError, YardError
from torchyard.kube.informer import Informer, Key
from torchyard.kube.supervisor import run_parts
from torchyard.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

# The id of the current reconciliation, for log lines.
reconcile_id: ContextVar[str] = ContextVar("reconcile_id", default="")

# Reconciles one key; returns the seconds until the next call, or None.
Reconcile = Callable[[Key], Awaitable[float | None]]
Observe = Callable[[str, float], None]  # result, seconds


class Controller:
    """`run` until cancelled. Workers start when every informer has synced."""

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
            await run_parts(**{f"{self.name}-{number}": self._work for number in range(self._workers)})
        except asyncio.CancelledError:
            self.queue.close()  # not after a failure: the controller is started again, and its delayed keys count
            raise

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            started, result = time.perf_counter(), "error"
            reconcile_id.set(uuid.uuid4().hex[:12])
            try:
                requeue_after = await self._reconcile(key)
            except YardError as error:
                log.log(
                    logging.DEBUG if _is_expected(error) else logging.WARNING,
                    "reconcile failed: controller=%s key=%s error=%s retry_seconds=%.2f",
                    self.name,
                    "/".join(key),
                    error,
                    self.queue.add_rate_limited(key),
                )
            except Exception:
                log.exception(
                    "reconcile raised an unexpected exception: controller=%s key=%s retry_seconds=%.2f",
                    self.name,
                    "/".join(key),
                    self.queue.add_rate_limited(key),
                )
            else:
                result = "success" if requeue_after is None else "requeue_after"
                self.queue.forget(key)
                if requeue_after is not None:
                    self.queue.add_after(key, requeue_after)
            finally:
                self.queue.done(key)
                self._observe(result, time.perf_counter() - started)


def _is_expected(error: YardError) -> bool:
    """A conflict: the informer will deliver the newer object. Or a namespace that ends, and its objects with it."""
    return isinstance(error, StatusError) and (error.status in (404, 409) or error.is_namespace_terminating)
