"""One job: its state and why, its replicas, and its most important curve."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import yaml

from torchyard.api.times import human_duration
from torchyard.cli.tui.braille import plot
from torchyard.cli.tui.job_data import JobData, ReplicaRow, age_of
from torchyard.cli.tui.list_table import ListRow, list_table
from torchyard.cli.tui.logs_page import LogsPage
from torchyard.cli.tui.metrics_page import MetricsPage, curve_title
from torchyard.cli.tui.page import Keys, Navigator, SearchField, TuiPage
from torchyard.cli.tui.scrolling import ListCursor
from torchyard.cli.tui.styled_line import Line, pad
from torchyard.cli.tui.text_page import TextPage
from torchyard.core.run.summary import summarize
from torchyard.jobs.actions import delete, read_events, resume, suspend
from torchyard.kube.client import Client
from torchyard.kube.job_lookup import JobHandle

TABS: Keys = (
    ("l", "logs"),
    ("m", "metrics"),
    ("e", "events"),
    ("y", "YAML"),
    ("s", "summary"),
    ("esc", "back"),
)
_MAX_REASONS = 4
_MIN_PLOT, _MAX_PLOT = 4, 12


class JobPage:
    search: SearchField | None = None

    def __init__(self, client: Client, data: JobData) -> None:
        self.client, self.data = client, data
        self._cursor = ListCursor()
        self._replicas: list[ReplicaRow] = []

    @property
    def title(self) -> str:
        return f"{self.data.object['kind']} {self.data.handle.namespace}/{self.data.handle.name}"

    @property
    def keys(self) -> Keys:
        own = (("enter", "log of the replica"), ("S", "stop"), ("R", "resume"), ("ctrl-d", "delete"))
        return (*TABS, *own)

    async def run(self) -> None:
        await self.data.run()

    def render(self, width: int, height: int) -> list[Line]:
        self._replicas = self.data.replicas()
        self._cursor.update([replica.name for replica in self._replicas])
        lines = self._state_lines(width)
        curves = self.data.curves()
        # What is left of the height is shared by the table and the curve: the table gets what it needs first.
        left = height - len(lines) - 2
        plot_height = min(_MAX_PLOT, max(0, left - len(self._replicas) - 2)) if curves else 0
        if curves and plot_height < _MIN_PLOT and left > 2 * _MIN_PLOT:
            plot_height = _MIN_PLOT
        table_height = left - (plot_height + 2 if plot_height else 0)
        lines += self._table(width, max(1, table_height))
        if plot_height:
            name, replicas = next(iter(curves.items()))
            lines += [[], curve_title(name, replicas), *plot(list(replicas.values()), width, plot_height)]
        return lines

    def press(self, key: str, app: Navigator) -> None:
        if self._cursor.press(key):
            return
        if key == "enter" and self._replicas:
            self.data.follow_logs()
            app.open(LogsPage(self.data, self, replica=self._replicas[self._cursor.index].name))
        elif not self.open_tab(key, app):
            job_actions(key, app, self)

    def open_tab(self, key: str, app: Navigator) -> bool:
        """Show another page of the job, instead of the one above this one; whether the key is that of a page."""
        page: TuiPage
        if key == "s":
            app.back_to(self)
            return True
        if key == "l":
            self.data.follow_logs()
            page = LogsPage(self.data, self)
        elif key == "m":
            page = MetricsPage(self.data, self)
        elif key == "e":
            page = TextPage(f"events of {self.data.handle.name}", self, self._events, period=3.0, changed=app.changed)
        elif key == "y":
            page = TextPage(f"YAML of {self.data.handle.name}", self, self._yaml, period=1.0, changed=app.changed)
        else:
            return False
        app.back_to(self)
        app.open(page)
        return True

    def _state_lines(self, width: int) -> list[Line]:
        summary = summarize(self.data.object, datetime.now(UTC))
        state = "deleted" if self.data.is_deleted else summary.state
        facts = [f"{summary.ready}/{summary.replicas} replicas", f"age {human_duration(summary.age)}"]
        facts += [f"queue {summary.queue}"] if summary.queue else []
        facts += [summary.progress] if summary.progress else []
        lines: list[Line] = [[(state, "bold"), (f"   {'   '.join(facts)}", "")]]
        lines += [[(pad(reason, width).rstrip(), "yellow")] for reason in self.data.reasons[:_MAX_REASONS]]
        if self.data.problem:
            lines.append([(f"no curves: {self.data.problem}", "dim")])
        lines.append([])
        return lines

    def _table(self, width: int, height: int) -> list[Line]:
        if not self._replicas:
            return [[("no replicas", "dim")]]
        header = ["REPLICA", "RANK", "STATE", "RESTARTS", "CPU", "MEMORY", "AGE", "NODE"]
        window = self._cursor.window(height)
        rows = [ListRow(self._cells(self._replicas[index])) for index in window]
        lines = list_table(header, rows, width, chosen=self._cursor.index - window.start)
        if len(window) < len(self._replicas):
            lines[0].append((f"  {window.start + 1}–{window.stop} of {len(self._replicas)}", "dim"))
        return lines

    def _cells(self, replica: ReplicaRow) -> list[str]:
        cpu, memory = self.data.use(replica.name)
        return [
            replica.name,
            "" if replica.rank is None else str(replica.rank),
            replica.state,
            str(replica.restarts),
            "" if cpu is None else f"{cpu:.2f}",
            "" if memory is None else f"{memory / (1 << 20):,.0f}Mi",
            human_duration(timedelta(seconds=max(0.0, age_of(replica.started)))) if replica.started else "",
            replica.node,
        ]

    async def _events(self) -> list[Line]:
        events = await read_events(self.client, self.data.handle)
        if not events:
            return [[("no events; the server keeps them for an hour", "dim")]]
        return [
            [
                (f"{event.time[11:19]}  ", "dim"),
                (f"{event.reason:<20} ", "red" if event.type == "Warning" else ""),
                (f"{event.object}: {event.message}" + (f" (x{event.count})" if event.count > 1 else ""), ""),
            ]
            for event in events
        ]

    async def _yaml(self) -> list[Line]:
        text = yaml.safe_dump(self.data.object, sort_keys=False, allow_unicode=True, width=1000)
        return [[(line, "")] for line in text.splitlines()]


def job_actions(key: str, app: Navigator, page: JobPage) -> None:
    """Stop, resume or delete the job of a page, if the user confirms it."""
    actions: dict[str, tuple[str, Callable[[Client, JobHandle], Awaitable[object]]]] = {
        "S": ("stop", suspend),
        "R": ("resume", resume),
        "ctrl-d": ("delete", delete),
    }
    if key in actions:
        name, action = actions[key]
        job = page.data.handle

        async def act() -> object:
            return await action(page.client, job)

        app.ask(f"{name} {job.qualified_name} in {job.namespace}?", act)
