"""All curves of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.cli.tui.braille import LABEL_WIDTH, Point, number_text, plot
from torchyard.cli.tui.page import JobTabs, Keys, Navigator, SearchField
from torchyard.cli.tui.scrolling import TextWindow
from torchyard.cli.tui.styled_line import SERIES_STYLES, Line

if TYPE_CHECKING:
    from torchyard.cli.tui.job_data import JobData

_PLOT_HEIGHT = 7
_CURVE_HEIGHT = _PLOT_HEIGHT + 3  # with its title, its axis and an empty line
_MAX_NAMED = 6


class MetricsPage:
    def __init__(self, data: JobData, job: JobTabs) -> None:
        self._data, self._job = data, job
        self.search: SearchField | None = SearchField()
        self._window = TextWindow()

    @property
    def title(self) -> str:
        return f"metrics of {self._data.handle.name}"

    @property
    def keys(self) -> Keys:
        return (("j/k", "scroll"), ("/", "search"), ("l", "logs"), ("s", "summary"), ("esc", "back"))

    async def run(self) -> None:
        """The page of the job reads them."""

    def render(self, width: int, height: int) -> list[Line]:
        curves = [
            (name, replicas)
            for name, replicas in self._data.curves().items()
            if self.search is None or self.search.matches(name)
        ]
        if not curves:
            text = self._data.problem or "no curves yet: a program that prints name=value has one for each name"
            return [[(text, "dim")]]
        window = self._window.window(len(curves) * _CURVE_HEIGHT, height)
        first = window.start // _CURVE_HEIGHT
        lines: list[Line] = []
        for name, replicas in curves[first : -(-window.stop // _CURVE_HEIGHT)]:  # a plot costs: only what is shown
            lines.append(curve_title(name, replicas))
            lines += plot(list(replicas.values()), width, _PLOT_HEIGHT)
            lines += [self._time_axis(name, replicas, width), []]
        skipped = first * _CURVE_HEIGHT
        return lines[window.start - skipped : window.stop - skipped]

    def press(self, key: str, app: Navigator) -> None:
        if not self._window.press(key):
            self._job.open_tab(key, app)

    def _time_axis(self, name: str, replicas: dict[str, list[Point]], width: int) -> Line:
        times = [at for points in replicas.values() for at, _ in points]
        if not times:
            return []
        span = max(times) - min(times)
        text = f"{_duration(span)}" if self._data.has_times(name) else f"last {int(span) + 1} values in the log"
        return [(" " * LABEL_WIDTH + "└" + text.rjust(max(0, width - LABEL_WIDTH - 1), "─"), "dim")]


def curve_title(name: str, replicas: dict[str, list[Point]]) -> Line:
    """The name of a curve, and the last value of each replica in the colour of its line."""
    line: Line = [(name, "bold")]
    for number, (replica, points) in enumerate(list(replicas.items())[:_MAX_NAMED]):
        if points:
            style = SERIES_STYLES[number % len(SERIES_STYLES)]
            line.append((f"  {replica or 'job'} {number_text(points[-1][1])}", style))
    if len(replicas) > _MAX_NAMED:
        line.append((f"  and {len(replicas) - _MAX_NAMED} more", "dim"))
    return line


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"
