"""Curves of a cluster's jobs: what metrics.k8s.io reports while `yard console` runs, with the rights of its user.

The operator does not keep them for everyone: its metrics port asks nobody for credentials, and a job's curves are for
those who may read the job.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from torchyard.api.errors import StatusError, YardError
from torchyard.core.samples.owners import sampled_jobs
from torchyard.core.samples.table import SampleTable
from torchyard.core.samples.usage import record_usage
from torchyard.kube.client import Client

log = logging.getLogger(__name__)

_PATH = "/apis/metrics.k8s.io/v1beta1"
_PERIOD_SECONDS = 15.0  # as metrics-server measures
_RETRY_SECONDS = 300.0  # where there is no metrics-server, or no right to read it
_REFUSED = (401, 403, 404, 503)


class ClusterUsage:
    """`run` until cancelled. `namespace` is read by users who may not read all."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._paths = (f"{_PATH}/pods", f"{_PATH}/namespaces/{namespace}/pods")
        self._table = SampleTable(lost_before=time.time())

    def document(self, namespace: str, resource: str, name: str, since: float) -> dict[str, Any]:
        return self._table.document(sampled_jobs(namespace, resource, name), since)

    async def run(self) -> None:
        while True:
            is_available = await self.sample()
            await asyncio.sleep(_PERIOD_SECONDS if is_available else _RETRY_SECONDS)

    async def sample(self) -> bool:
        """Whether usage could be read."""
        for path in self._paths:
            try:
                listing = await self._client.raw("GET", path)
            except StatusError as error:
                if error.status not in _REFUSED:
                    raise
                continue
            except YardError as error:
                log.warning("usage not read: error=%r", error.message)
                return True  # the server does not respond just now
            now = time.time()
            for metrics in listing.get("items") or ():
                record_usage(self._table, metrics, now)
            return True
        return False
