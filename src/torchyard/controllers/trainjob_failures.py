"""The first failed node of each TrainJob and the end of its log, kept because a JobSet that fails deletes its pods."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import aclosing

from torchyard.api.errors import YardError
from torchyard.api.gvr import PODS
from torchyard.api.jobset import names as jobsets
from torchyard.api.objects import Object
from torchyard.api.trainjob import messages
from torchyard.core.training.failures import FailedContainer, first_of, is_same
from torchyard.core.trainjob.failures import Attempt, attempt_of, failures_of
from torchyard.core.trainjob.view import NodeFailure
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer, key_of
from torchyard.kube.informer_factory import InformerFactory

log = logging.getLogger(__name__)

_JOBSET = "jobset"
_MAX_FAILURES = 4096
_LOG_SECONDS = 5.0
_LABELS = (
    jobsets.JOBSET_NAME,
    jobsets.JOBSET_UID,
    jobsets.RESTART_ATTEMPT,
    jobsets.JOB_RESTART_ATTEMPT,
    jobsets.REPLICATED_JOB_NAME,
    jobsets.JOB_INDEX,
)


class FirstFailures:
    """`find` the first failure of a job's current attempt, among those seen so far and those that `pods` shows now."""

    def __init__(self, client: Client, informers: InformerFactory) -> None:
        self._client = client
        self.pods: Informer = informers.for_resource(
            PODS, labels=jobsets.JOBSET_NAME, indexes={_JOBSET: _by_jobset}, transform=_slim_pod
        )
        self._seen: OrderedDict[str, tuple[Attempt, NodeFailure]] = OrderedDict()  # by the job's uid

    async def find(self, job: Object, jobset: Object | None) -> NodeFailure | None:
        uid = job["metadata"]["uid"]
        if jobset is None or job["spec"].get("suspend"):
            self._seen.pop(uid, None)
            return None
        attempt = attempt_of(job, jobset)
        before, known = self._seen.get(uid, (None, None))
        if before != attempt:
            known = None
        failures = failures_of(job, jobset, self.pods.by(_JOBSET, "/".join(key_of(jobset))))
        first = first_of([known.container, *failures] if known is not None else failures)
        if first is None:
            return None
        if known is None or not is_same(first, known.container):
            known = NodeFailure(first, await self._log_of(job["metadata"]["namespace"], first))
        self._seen[uid] = attempt, known
        self._seen.move_to_end(uid)
        while len(self._seen) > _MAX_FAILURES:
            self._seen.popitem(last=False)
        return known

    async def _log_of(self, namespace: str, failed: FailedContainer) -> str:
        """The last lines of a failed container; empty if the log cannot be read, which is no reason to wait."""
        text = b""
        lines = self._client.logs(
            PODS,
            failed.pod,
            namespace,
            container=failed.container,
            previous=failed.restarted,
            tail_lines=messages.LOG_LINES,
        )
        try:
            async with asyncio.timeout(_LOG_SECONDS), aclosing(lines):
                async for chunk in lines:
                    text += chunk
        except (YardError, TimeoutError) as error:
            log.info("log not read: pod=%s/%s error=%s", namespace, failed.pod, error)
        return text.decode(errors="replace").strip()[-messages.LOG_CHARACTERS :]


def _by_jobset(pod: Object) -> list[str]:
    name = (pod["metadata"].get("labels") or {}).get(jobsets.JOBSET_NAME)
    return [f"{pod['metadata']['namespace']}/{name}"] if name else []


def _slim_pod(pod: Object) -> Object:
    """The part of a pod that tells of a failure, and of which attempt."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    slim_metadata = {
        key: metadata[key]
        for key in ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
        if key in metadata
    }
    slim_metadata["labels"] = {name: labels[name] for name in _LABELS if name in labels}
    status = pod.get("status") or {}
    statuses = {key: status[key] for key in ("containerStatuses", "initContainerStatuses") if key in status}
    return {"metadata": slim_metadata, "status": statuses}
