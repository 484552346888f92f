"""The list of jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.api.times import human_duration
from torchyard.cli.tui.job_page import JobPage, job_actions
from torchyard.cli.tui.list_table import ListRow, list_table
from torchyard.cli.tui.live_jobs import JobKey, LiveJobs, age_of_job
from torchyard.cli.tui.page import Keys, Navigator, SearchField
from torchyard.cli.tui.scrolling import ListCursor
from torchyard.cli.tui.styled_line import Line
from torchyard.core.run.summary import JobSummary
from torchyard.kube.job_lookup import JobHandle

STATE_STYLES = {
    "Running": "green",
    "Succeeded": "blue",
    "Complete": "blue",
    "Failed": "red",
    "Restarting": "yellow",
    "Pending": "yellow",
    "Suspended": "dim",
}
_TABS = "lmey"


class JobsPage:
    search: SearchField | None

    def __init__(self, jobs: LiveJobs, namespace: str, open_job: Callable[[JobHandle], JobPage]) -> None:
        self._jobs, self._namespace, self._open_job = jobs, namespace, open_job
        self.search = SearchField()
        self._cursor = ListCursor()
        self._rows: list[JobSummary] = []

    @property
    def title(self) -> str:
        return f"jobs in {self._namespace}" if self._namespace else "jobs in all namespaces"

    @property
    def keys(self) -> Keys:
        return (
            ("enter", "open"),
            ("l", "logs"),
            ("m", "metrics"),
            ("/", "search"),
            ("e", "events"),
            ("y", "YAML"),
            ("S", "stop"),
            ("R", "resume"),
            ("ctrl-d", "delete"),
            ("j/k g/G", "move"),
        )

    async def run(self) -> None:
        await self._jobs.run()

    def render(self, width: int, height: int) -> list[Line]:
        self._update()
        if not self._rows:
            text = "loading" if not self._jobs.is_loaded else "no job matches" if self._search_text else "no jobs"
            return [[(text, "dim")]]
        header = ["NAME", "KIND", "STATE", "REPLICAS", "QUEUE", "AGE", "PROGRESS"]
        if not self._namespace:
            header.insert(0, "NAMESPACE")
        window = self._cursor.window(height - 1)
        jobs = [self._rows[index] for index in window]
        rows = [ListRow(self._cells(job), STATE_STYLES.get(job.state, "")) for job in jobs]
        return list_table(header, rows, width, chosen=self._cursor.index - window.start)

    def press(self, key: str, app: Navigator) -> None:
        if self._cursor.press(key):
            return
        job = self._chosen()
        if job is None:
            return
        if key in ("enter", "s", "right"):
            app.open(self._open_job(job))
        elif key in _TABS and len(key) == 1:
            page = self._open_job(job)
            app.open(page)
            page.press(key, app)
        else:
            job_actions(key, app, self._open_job(job))

    @property
    def _search_text(self) -> str:
        return self.search.text if self.search else ""

    def _update(self) -> None:
        rows = self._jobs.summaries()
        if self.search and self._search_text:
            rows = [row for row in rows if self.search.matches(_searched(row))]
        self._rows = rows
        self._cursor.update([_key(row) for row in rows])

    def _cells(self, job: JobSummary) -> list[str]:
        cells = [
            job.name,
            job.kind,
            job.state,
            f"{job.ready}/{job.replicas}",
            job.queue,
            human_duration(age_of_job(job, datetime.now(UTC))),
            job.progress,
        ]
        return cells if self._namespace else [job.namespace, *cells]

    def _chosen(self) -> JobHandle | None:
        self._update()
        return self._jobs.find(_key(self._rows[self._cursor.index])) if self._rows else None


def _key(job: JobSummary) -> JobKey:
    return job.namespace, job.kind, job.name


def _searched(job: JobSummary) -> str:
    return " ".join((job.namespace, job.name, job.kind, job.state, job.queue, job.message))
