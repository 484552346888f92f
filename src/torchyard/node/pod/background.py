"""Work beside a pod's worker, which must not end because of one error."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from torchyard.api.errors import YardError

log = logging.getLogger(__name__)

_FIRST_DELAY, _LONGEST_DELAY = 0.5, 60.0


async def retry_after_errors(work: Callable[[], Awaitable[None]], *, name: str, pod: str) -> None:
    """Run `work` to its end, and again after an error: such as no open files left, or a shim that does not reply."""
    delay = _FIRST_DELAY
    while True:
        started = time.monotonic()
        try:
            return await work()
        except Exception as error:
            if time.monotonic() - started > _LONGEST_DELAY:
                delay = _FIRST_DELAY
            log.warning(
                "work beside a pod failed and is started again: work=%s pod=%s delay_seconds=%g error=%r",
                name,
                pod,
                delay,
                str(error),
                exc_info=not isinstance(error, (YardError, OSError)),
            )
        await asyncio.sleep(delay)
        delay = min(delay * 2, _LONGEST_DELAY)
