"""The merged logs of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.cli.tui.log_buffer import BufferedLine, is_error
from torchyard.cli.tui.page import JobTabs, Keys, Navigator, SearchField
from torchyard.cli.tui.scrolling import TextWindow
from torchyard.cli.tui.styled_line import SERIES_STYLES, Line, printable

if TYPE_CHECKING:
    from torchyard.cli.tui.job_data import JobData


class LogsPage:
    """`replica`: only the lines of one."""

    def __init__(self, data: JobData, job: JobTabs, *, replica: str = "") -> None:
        self._data, self._job, self._replica = data, job, replica
        self.search: SearchField | None = SearchField()
        self._window = TextWindow(follow=True)
        self._removed = data.logs.removed
        self._lines: list[BufferedLine] = []

    @property
    def title(self) -> str:
        follows = "following" if self._window.follow else "paused"
        return f"logs of {self._replica or 'all replicas'} of {self._data.handle.name} · {follows}"

    @property
    def keys(self) -> Keys:
        return (
            ("f", "follow"),
            ("E", "first error"),
            ("/", "search"),
            ("r", "replica"),
            ("j/k g/G", "scroll"),
            ("←/→", "sideways"),
            ("m", "metrics"),
            ("s", "summary"),
            ("esc", "back"),
        )

    async def run(self) -> None:
        """The page of the job reads them."""

    def render(self, width: int, height: int) -> list[Line]:
        self._select()
        if not self._lines:
            text = "no line matches" if self.search and self.search.text else "no lines yet"
            return [[(text, "dim")]]
        order = {replica: number for number, replica in enumerate(self._data.logs.replicas)}
        return [self._render(self._lines[index], order) for index in self._window.window(len(self._lines), height)]

    def press(self, key: str, app: Navigator) -> None:
        if self._window.press(key):
            return
        if key == "f":
            self._window.follow = not self._window.follow
        elif key == "E":
            first = next((index for index, line in enumerate(self._lines) if is_error(line.text)), None)
            if first is not None:
                self._window.show(first)
        elif key == "r":
            choices = ["", *self._data.logs.replicas]
            position = choices.index(self._replica) if self._replica in choices else 0
            self._replica = choices[(position + 1) % len(choices)]
        else:
            self._job.open_tab(key, app)

    def _select(self) -> None:
        logs = self._data.logs
        if logs.removed != self._removed:
            if not self._window.follow:
                self._window.shift(logs.removed - self._removed)
            self._removed = logs.removed
        search = self.search
        if not self._replica and (search is None or not search.text):
            self._lines = logs.lines
            return
        self._lines = [
            line
            for line in logs.lines
            if (not self._replica or line.replica.partition("/")[0] == self._replica or line.replica == self._replica)
            and (search is None or not search.text or search.matches(line.text))
        ]

    def _render(self, line: BufferedLine, order: dict[str, int]) -> Line:
        text = printable(line.text)[self._window.left :]
        style = SERIES_STYLES[order.get(line.replica, 0) % len(SERIES_STYLES)]
        return [(f"{line.replica} ", style), (text, "red" if is_error(line.text) else "")]
