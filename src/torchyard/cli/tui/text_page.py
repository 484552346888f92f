"""A text that is read again now and then: events, YAML, the keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from torchyard.api.errors import YardError
from torchyard.cli.tui.page import JobTabs, Keys, Navigator, SearchField
from torchyard.cli.tui.scrolling import TextWindow
from torchyard.cli.tui.styled_line import Line, plain


class TextPage:
    """`job`: the page whose other pages the keys open."""

    def __init__(
        self,
        title: str,
        job: JobTabs | None,
        read: Callable[[], Awaitable[list[Line]]],
        *,
        period: float,
        changed: Callable[[], None],
    ) -> None:
        self.title = title
        self.search: SearchField | None = SearchField()
        self._job, self._read, self._period, self._changed = job, read, period, changed
        self._lines: list[Line] | None = None
        self._window = TextWindow()

    @property
    def keys(self) -> Keys:
        return (("j/k g/G", "scroll"), ("←/→", "sideways"), ("/", "search"), ("s", "summary"), ("esc", "back"))

    async def run(self) -> None:
        while True:
            try:
                self._lines = await self._read()
            except YardError as error:
                self._lines = [[(error.message, "red")]]
            self._changed()
            await asyncio.sleep(self._period)

    def render(self, width: int, height: int) -> list[Line]:
        if self._lines is None:
            return [[("loading", "dim")]]
        search = self.search
        lines = [line for line in self._lines if search is None or search.matches(plain(line))]
        return [_shifted(lines[index], self._window.left) for index in self._window.window(len(lines), height)]

    def press(self, key: str, app: Navigator) -> None:
        if not self._window.press(key) and self._job is not None:
            self._job.open_tab(key, app)


def _shifted(line: Line, left: int) -> Line:
    """The line without its first characters."""
    shifted: Line = []
    for text, style in line:
        shifted.append((text[left:], style))
        left = max(0, left - len(text))
    return shifted
