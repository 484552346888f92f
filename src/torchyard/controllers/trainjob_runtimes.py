"""Creates the runtimes that belong to an installation. Existing ones stay as they are, because users change them."""

from __future__ import annotations

import asyncio
import logging

from torchyard.api.errors import StatusError, YardError
from torchyard.api.trainjob import names
from torchyard.api.trainjob.runtimes import runtimes
from torchyard.controllers.trainjob import RUNTIMES
from torchyard.kube.client import Client

log = logging.getLogger(__name__)

_FIRST_DELAY, _LONGEST_DELAY = 0.05, 30.0


async def create_runtimes(client: Client) -> None:
    """Retry until every runtime exists: the kind, or the webhook that validates it, may not be served yet."""
    delay = _FIRST_DELAY
    for runtime in runtimes():
        while True:
            try:
                await client.create(RUNTIMES[names.CLUSTER_RUNTIME_KIND], runtime)
            except YardError as error:
                if isinstance(error, StatusError) and error.reason == "AlreadyExists":
                    break
                log.info("runtime not created yet: name=%s error=%s", runtime["metadata"]["name"], error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, _LONGEST_DELAY)
            else:
                break
