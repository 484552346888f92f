"""A job as people see it: a table in a terminal (rich), HTML with curves of its metrics in a notebook."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from torchyard.api.objects import Object
from torchyard.api.times import human_duration
from torchyard.core.run.ranks import choose_replicas
from torchyard.core.run.record import ReplicaRecord, replica_record
from torchyard.core.run.summary import JobSummary, summarize_with_links
from torchyard.kube.job_lookup import JobHandle

if TYPE_CHECKING:
    from rich.table import Table

_COLOURS = {"Succeeded": "#2e7d32", "Complete": "#2e7d32", "Running": "#1565c0", "Failed": "#c62828"}
_WIDTH, _HEIGHT, _MAX_CURVES, _MAX_POINTS = 240, 48, 6, 400


class ReplicaLine(NamedTuple):
    """A line of a log and the replica that printed it, such as `worker-0`."""

    replica: str
    text: str


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job at one moment: its line, its replicas, and the metrics that its first replica has printed so far."""

    summary: JobSummary
    replicas: tuple[ReplicaRecord, ...]
    metrics: tuple[dict[str, float], ...]

    def __rich__(self) -> Table:
        # as text: in a string, rich would read [name] as markup
        from rich.table import Table
        from rich.text import Text

        last = ", ".join(f"{name}={values[-1]:g}" for name, values in self.curves().items())
        table = Table(
            title=Text(_title(self.summary)), caption=Text(last) if last else None, title_justify="left", box=None
        )
        for heading in ("REPLICA", "STATUS", "EXIT", "REASON"):
            table.add_column(heading)
        for replica in self.replicas:
            table.add_row(*map(Text, (replica["name"], replica["phase"], _exit_code(replica), replica["reason"])))
        return table

    def _repr_html_(self) -> str:
        colour = _COLOURS.get(self.summary.state, "#616161")
        title = f'<b style="color:{colour}">{escape(_title(self.summary))}</b>'
        rows = [
            [replica["name"], replica["phase"], _exit_code(replica), replica["reason"]] for replica in self.replicas
        ]
        parts = [title, _links(self.summary), html_table(["replica", "status", "exit", "reason"], rows) if rows else ""]
        parts += [_curve(name, values) for name, values in list(self.curves().items())[:_MAX_CURVES]]
        return f"<div>{''.join(parts)}</div>"

    def curves(self) -> dict[str, list[float]]:
        """The finite values of every metric, in order."""
        curves: dict[str, list[float]] = {}
        for row in self.metrics:
            for name, value in row.items():
                if math.isfinite(value):
                    curves.setdefault(name, []).append(value)
        return curves


def job_view(job: JobHandle, pods: list[Object], metrics: Sequence[dict[str, float]]) -> JobSnapshot:
    """What a job and its pods look like now."""
    now = datetime.now(UTC)
    replicas = tuple(replica_record(pod, job.name, now) for pod in choose_replicas(pods, job.name))
    return JobSnapshot(summarize_with_links(job.object, now), replicas, tuple(metrics))


def jobs_html(summaries: Sequence[JobSummary]) -> str:
    """A table of jobs for a notebook."""
    rows = [
        [job.name, job.kind, job.state, f"{job.ready}/{job.replicas}", job.queue, human_duration(job.age)]
        for job in summaries
    ]
    return html_table(["name", "kind", "state", "replicas", "queue", "age"], rows) if rows else "<i>no jobs</i>"


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _links(job: JobSummary) -> str:
    return "".join(
        f' <a href="{escape(link.url)}" target="_blank" rel="noopener noreferrer">{escape(link.tracker)}</a>'
        for link in job.links
    )


def _title(job: JobSummary) -> str:
    message = f": {job.message}" if job.message else ""
    return f"{job.kind} {job.namespace}/{job.name} {job.state}, {job.ready}/{job.replicas} ready{message}"


def _exit_code(replica: ReplicaRecord) -> str:
    return "" if replica["exitCode"] is None else str(replica["exitCode"])


def _curve(name: str, values: list[float]) -> str:
    """A metric as a line: SVG, which every notebook draws without further packages."""
    shown = values[:: max(1, math.ceil(len(values) / _MAX_POINTS))]
    low, high = min(shown), max(shown)
    step = _WIDTH / max(1, len(shown) - 1)
    points = " ".join(
        f"{index * step:.1f},{_HEIGHT - (value - low) / ((high - low) or 1) * _HEIGHT:.1f}"
        for index, value in enumerate(shown)
    )
    label = escape(f"{name} {values[-1]:g}")
    return (
        f'<div><span>{label}</span> <svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{label}">'
        f'<polyline points="{points}" fill="none" stroke="#1565c0"/></svg></div>'
    )
