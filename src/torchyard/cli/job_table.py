"""The table of `yard ps`, once or whenever a job changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import UTC, datetime

from torchyard.api.times import human_duration
from torchyard.core.run.state import has_controller
from torchyard.core.run.summary import JobSummary, summarize_with_links
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.kube.job_lookup import KINDS, served_kinds


class JobTable:
    """Lines of equal columns. Their widths only grow, so that lines printed later stay aligned."""

    def __init__(self, *, with_namespace: bool, wide: bool) -> None:
        self._with_namespace, self._wide = with_namespace, wide
        self._widths: list[int] = []
        self._has_header = False

    def lines(self, summaries: list[JobSummary]) -> list[str]:
        """The lines of these jobs, below the header if it has not been printed."""
        rows = [self._row(summary) for summary in summaries]
        if not self._has_header:
            self._has_header = True
            rows.insert(0, self._header())
        self._widths = [
            max(width, *(len(row[column]) for row in rows))
            for column, width in enumerate(self._widths or [0] * len(self._header()))
        ]
        return [
            "   ".join(f"{cell:<{width}}" for cell, width in zip(row, self._widths, strict=True)).rstrip()
            for row in rows
        ]

    def _header(self) -> list[str]:
        columns = ["NAME", "KIND", "STATE", "REPLICAS", "QUEUE", "AGE", "PROGRESS"]
        return [
            *(["NAMESPACE"] if self._with_namespace else []),
            *columns,
            *(["MESSAGE", "LINKS"] if self._wide else []),
        ]

    def _row(self, summary: JobSummary) -> list[str]:
        cells = [
            summary.name,
            summary.kind,
            summary.state,
            f"{summary.ready}/{summary.replicas}",
            summary.queue if summary.queue_position is None else f"{summary.queue} #{summary.queue_position}",
            human_duration(summary.age),
            summary.progress,
        ]
        return [
            *([summary.namespace] if self._with_namespace else []),
            *cells,
            *([summary.message, " ".join(link.url for link in summary.links)] if self._wide else []),
        ]


async def watch_jobs(
    client: Client,
    namespace: str,
    labels: str,
    write: Callable[[list[str]], object],
    table: JobTable,
    *,
    only: Collection[tuple[str, str, str]] = (),
) -> None:
    """Write a line for every job, and another whenever its line changes. Ends when it is cancelled.

    `only` are the namespaces, kinds and names of the jobs that are shown; without any, all are.
    """
    informers = {
        kind: Informer(client, KINDS[kind], namespace=namespace, labels=labels) for kind in await served_kinds(client)
    }
    changed = asyncio.Event()
    for informer in informers.values():
        informer.on_change(lambda *_: changed.set())
    shown: dict[tuple[str, str, str], JobSummary] = {}
    async with asyncio.TaskGroup() as group:
        for informer in informers.values():
            group.create_task(informer.run())
        for informer in informers.values():
            await informer.synced.wait()
        while True:
            changed.clear()
            chosen = [summary for summary in _summaries(informers) if not only or _key(summary) in only]
            new = [summary for summary in chosen if not _same(shown.get(_key(summary)), summary)]
            shown |= {_key(summary): summary for summary in new}
            if new or not shown:
                write(table.lines(new))
            await changed.wait()


def _summaries(informers: dict[str, Informer]) -> list[JobSummary]:
    now = datetime.now(UTC)
    return [
        summarize_with_links({"kind": kind, **obj}, now)
        for kind, informer in informers.items()
        for obj in sorted(informer.all(), key=lambda obj: (obj["metadata"]["namespace"], obj["metadata"]["name"]))
        if not has_controller(obj)
    ]


def _key(summary: JobSummary) -> tuple[str, str, str]:
    return summary.namespace, summary.kind, summary.name


def _same(before: JobSummary | None, after: JobSummary) -> bool:
    return before is not None and (before.state, before.ready, before.replicas, before.queue, before.progress) == (
        after.state,
        after.ready,
        after.replicas,
        after.queue,
        after.progress,
    )
