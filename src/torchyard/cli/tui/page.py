"""What a page of `yard tui` is, and what it can ask of the application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from torchyard.cli.tui.styled_line import Line

Keys = tuple[tuple[str, str], ...]  # key, what it does; the first ones fit into the last line of a narrow screen


class Navigator(Protocol):
    """The application, as pages see it."""

    def open(self, page: TuiPage) -> None: ...

    def back(self) -> None: ...

    def back_to(self, page: TuiPage) -> None:
        """Close the pages above one."""

    def ask(self, question: str, action: Callable[[], Awaitable[object]]) -> None:
        """Do something if the user presses `y`. What it returns, or its error, is shown in the last line."""

    def changed(self) -> None:
        """Draw the screen again, soon."""


class TuiPage(Protocol):
    @property
    def title(self) -> str: ...

    @property
    def keys(self) -> Keys: ...

    @property
    def search(self) -> SearchField | None: ...

    async def run(self) -> None:
        """Load what the page shows, while it is open. An error is shown in the last line."""

    def render(self, width: int, height: int) -> list[Line]: ...

    def press(self, key: str, app: Navigator) -> None: ...


class JobTabs(Protocol):
    """The page of a job, whose keys open its other pages."""

    def open_tab(self, key: str, app: Navigator) -> bool: ...


class SearchField:
    """Words after `/`. All must be in a text; `-word` must not."""

    def __init__(self) -> None:
        self.text = ""
        self.is_active = False

    def press(self, key: str) -> None:
        """A key while the field is active."""
        if key == "enter":
            self.is_active = False
        elif key in ("esc", "ctrl-c"):
            self.text, self.is_active = "", False
        elif key == "backspace":
            self.text = self.text[:-1]
        elif key == "ctrl-u":
            self.text = ""
        elif len(key) == 1:
            self.text += key

    def matches(self, text: str) -> bool:
        lower = text.lower()
        return all(
            word[1:] not in lower if word.startswith("-") and len(word) > 1 else word in lower
            for word in self.text.lower().split()
        )
