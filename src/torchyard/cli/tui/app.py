"""The stack of pages, keys, and when the screen is drawn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

from torchyard.api.errors import YardError
from torchyard.cli.tui.alternate_screen import AlternateScreen
from torchyard.cli.tui.page import TuiPage
from torchyard.cli.tui.styled_line import Line, pad, plain, printable
from torchyard.cli.tui.text_page import TextPage

_DRAW_SECONDS = 1 / 15  # at least between two drawings
_REFRESH_SECONDS = 1.0  # ages change
_NOTICE_SECONDS = 8.0
_COMMON_KEYS = (("/", "search; enter keeps it, esc clears it"), ("?", "these keys"), ("q", "back, and quit at the end"))


class TuiApp:
    """`run` until the user quits. `label` is what the first line begins with."""

    def __init__(self, screen: AlternateScreen, label: str) -> None:
        self._screen, self._label = screen, label
        self._pages: list[tuple[TuiPage, asyncio.Task[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed, self._is_ended = asyncio.Event(), asyncio.Event()
        self._notice = ""
        self._notice_until = 0.0
        self._question: tuple[str, Callable[[], Awaitable[object]]] | None = None

    async def run(self, pages: Sequence[TuiPage]) -> None:
        """`pages` are open at the start, the last one on top."""
        for page in pages:
            self.open(page)
        with self._screen.opened(self.press, self.changed, self._is_ended.set), _notices(self.notify):
            try:
                await self._draw_until_ended()
            finally:
                tasks = [*(task for _, task in self._pages), *self._tasks]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _draw_until_ended(self) -> None:
        ended = asyncio.ensure_future(self._is_ended.wait())
        try:
            while not self._is_ended.is_set():
                self._changed.clear()
                self._screen.draw(self.frame(*self._screen.size))
                await asyncio.wait([ended], timeout=_DRAW_SECONDS)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_REFRESH_SECONDS):
                        await self._changed.wait()
        finally:
            ended.cancel()

    @property
    def page(self) -> TuiPage:
        return self._pages[-1][0]

    def open(self, page: TuiPage) -> None:
        self._pages.append((page, self._start(page.run())))
        self.changed()

    def back(self) -> None:
        if len(self._pages) > 1:
            self._pages.pop()[1].cancel()
            self.changed()
        else:
            self._is_ended.set()
            self.changed()

    def back_to(self, page: TuiPage) -> None:
        while self.page is not page and len(self._pages) > 1:
            self.back()

    def ask(self, question: str, action: Callable[[], Awaitable[object]]) -> None:
        self._question = question, action
        self.changed()

    def changed(self) -> None:
        self._changed.set()

    def notify(self, text: str) -> None:
        """Show a text in the last line for a while."""
        self._notice, self._notice_until = text, asyncio.get_running_loop().time() + _NOTICE_SECONDS
        self.changed()

    def press(self, key: str) -> None:
        self.changed()
        search = self.page.search
        if self._question is not None:
            (_, action), self._question = self._question, None
            if key == "y":
                self._start(self._act(action))
        elif search is not None and search.is_active:
            search.press(key)
        elif key == "ctrl-c":
            self._is_ended.set()
        elif key == "/" and search is not None:
            search.is_active = True
        elif key == "esc" and search is not None and search.text:
            search.text = ""
        elif key in ("q", "esc"):
            if key == "q" or len(self._pages) > 1:
                self.back()
        elif key == "?":
            self._open_help()
        else:
            self.page.press(key, self)

    def frame(self, width: int, height: int) -> list[Line]:
        """The whole screen: a title, the page, and a line with a question, a notice, a search or the keys."""
        body = self.page.render(width, max(1, height - 2))[: max(1, height - 2)]
        body += [[] for _ in range(height - 2 - len(body))]
        title: Line = [(pad(f" {self._label} · {self.page.title}", width), "reverse")]
        return [title, *body, self._last_line(width)]

    def _last_line(self, width: int) -> Line:
        search = self.page.search
        if self._question is not None:
            return [(f"{self._question[0]} y/n", "bold yellow")]
        if search is not None and search.is_active:
            return [(f"/{search.text}", "bold"), (" ", "reverse")]
        if self._notice and asyncio.get_running_loop().time() < self._notice_until:
            return [(self._notice, "yellow")]
        line: Line = [(f"/{search.text}  ", "bold")] if search is not None and search.text else []
        for key, text in (("?", "keys"), ("q", "quit"), *self.page.keys):
            hint: Line = [(key, "bold"), (f" {text}  ", "dim")]
            if len(plain(line)) + len(plain(hint)) > width:
                break
            line += hint
        return line

    def _open_help(self) -> None:
        keys = (*self.page.keys, *_COMMON_KEYS)
        lines: list[Line] = [[(f"{key:<10}", "bold"), (text, "")] for key, text in keys]

        async def read() -> list[Line]:
            return lines

        self.open(TextPage("keys", None, read, period=3600.0, changed=self.changed))

    async def _act(self, action: Callable[[], Awaitable[object]]) -> None:
        self.notify(str(await action()))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._reported(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _reported(self, work: Coroutine[Any, Any, None]) -> None:
        """An error ends what a page loads and is shown; the pages stay."""
        try:
            await work
        except* YardError as errors:
            self.notify("; ".join(_messages(errors)))


def _messages(errors: BaseExceptionGroup[YardError]) -> list[str]:
    messages = []
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            messages += _messages(error)
        else:
            messages.append(f"{error.message} ({error.hint})" if error.hint else error.message)
    return messages


class _NoticeHandler(logging.Handler):
    def __init__(self, notify: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._notify = notify

    def emit(self, record: logging.LogRecord) -> None:
        self._notify(printable(record.getMessage()))


@contextlib.contextmanager
def _notices(notify: Callable[[str], None]) -> Iterator[None]:
    """Warnings of the client library, such as a server that does not respond, belong into the last line."""
    root, handler = logging.getLogger(), _NoticeHandler(notify)
    before, root.handlers = root.handlers, [handler]
    try:
        yield
    finally:
        root.handlers = before
