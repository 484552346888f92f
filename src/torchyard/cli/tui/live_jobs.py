"""The jobs of a cluster, as they change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from torchyard.api.objects import Object
from torchyard.core.run.state import has_controller
from torchyard.core.run.summary import JobSummary, summarize
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.kube.job_lookup import KINDS, JobHandle, served_kinds

EPOCH = datetime.fromtimestamp(0, UTC)
JobKey = tuple[str, str, str]  # namespace, kind, name


class LiveJobs:
    """`run` until cancelled; `changed` is called whenever a job changes.

    A job is summarized when it changes, and not when the list is drawn: there may be ten thousand.
    """

    def __init__(self, client: Client, namespace: str, changed: Callable[[], None]) -> None:
        self._client, self._namespace, self._changed = client, namespace, changed
        self._informers: dict[str, Informer] = {}
        self._summaries: dict[JobKey, JobSummary] = {}
        self._order: list[JobKey] | None = None

    @property
    def is_loaded(self) -> bool:
        return any(informer.synced.is_set() for informer in self._informers.values())

    async def run(self) -> None:
        self._informers = {
            kind: Informer(self._client, KINDS[kind], namespace=self._namespace)
            for kind in await served_kinds(self._client)
        }
        async with asyncio.TaskGroup() as group:
            for kind, informer in self._informers.items():
                informer.on_change(partial(self._update, kind))
                group.create_task(informer.run())
                group.create_task(self._report_list(informer))

    async def _report_list(self, informer: Informer) -> None:
        await informer.synced.wait()
        self._changed()

    def _update(self, kind: str, event: str, obj: Object, _: Object | None) -> None:
        key = obj["metadata"]["namespace"], kind, obj["metadata"]["name"]
        if event == "DELETED":
            if self._summaries.pop(key, None) is not None:
                self._order = None
        elif not has_controller(obj):
            if key not in self._summaries:
                self._order = None
            self._summaries[key] = summarize({"kind": kind, **obj}, EPOCH)
        else:
            return
        self._changed()

    def summaries(self) -> list[JobSummary]:
        """The jobs that no other object controls, by namespace and name. Their ages are those in 1970: `age_of_job`."""
        if self._order is None:
            self._order = sorted(self._summaries, key=lambda key: (key[0], key[2], key[1]))
        return [self._summaries[key] for key in self._order]

    def find(self, key: JobKey) -> JobHandle | None:
        namespace, kind, name = key
        obj = self._informers[kind].get(namespace, name) if kind in self._informers else None
        gvr = KINDS[kind]
        return None if obj is None else JobHandle(gvr, {"kind": kind, "apiVersion": gvr.api_version, **obj})


def age_of_job(job: JobSummary, now: datetime) -> timedelta:
    return job.age + (now - EPOCH)
