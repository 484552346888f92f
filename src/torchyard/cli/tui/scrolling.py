"""A cursor in a list that may change, and the window of it that the screen shows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

_MOVES = {"j": 1, "down": 1, "k": -1, "up": -1}
_PAGES = {"pagedown": 1, "ctrl-f": 1, " ": 1, "pageup": -1, "ctrl-b": -1}
_FIRST, _LAST = ("g", "home"), ("G", "end")


def _target(key: str, line: int, height: int, last: int) -> int | None:
    """The line to which a key leads, which may lie beyond the ends; None for other keys."""
    if key in _MOVES:
        return line + _MOVES[key]
    if key in _PAGES:
        return line + _PAGES[key] * height
    return 0 if key in _FIRST else last if key in _LAST else None


class ListCursor:
    """The chosen row stays chosen when rows before it come and go."""

    def __init__(self) -> None:
        self._keys: list[Hashable] = []
        self._index = 0
        self._top = 0
        self._height = 1

    @property
    def index(self) -> int:
        return self._index

    def update(self, keys: Sequence[Hashable]) -> None:
        chosen = self._keys[self._index] if self._index < len(self._keys) else None
        self._keys = list(keys)
        if chosen is not None and chosen in self._keys:
            self._index = self._keys.index(chosen)
        self._index = max(0, min(self._index, len(self._keys) - 1))

    def window(self, height: int) -> range:
        """The rows that are shown; the chosen one is among them."""
        self._height = max(1, height)
        top = min(self._top, self._index)
        top = max(top, self._index - self._height + 1)
        self._top = max(0, min(top, len(self._keys) - self._height))
        return range(self._top, min(self._top + self._height, len(self._keys)))

    def press(self, key: str) -> bool:
        """Whether the key moves the cursor."""
        last = len(self._keys) - 1
        target = _target(key, self._index, self._height, last)
        if target is not None:
            self._index = max(0, min(target, last))
        return target is not None


class TextWindow:
    """A window of lines without a cursor. It stays at the end while it is there, if `follow` is set."""

    def __init__(self, *, follow: bool = False) -> None:
        self.follow = follow
        self.top = 0
        self.left = 0
        self._height, self._count = 1, 0

    def window(self, count: int, height: int) -> range:
        self._height, self._count = max(1, height), count
        last = max(0, count - self._height)
        self.top = last if self.follow else max(0, min(self.top, last))
        return range(self.top, min(self.top + self._height, count))

    def press(self, key: str) -> bool:
        last = max(0, self._count - self._height)
        if key in ("left", "h", "right"):
            self.left = max(0, self.left + (20 if key == "right" else -20))
            return True
        target = _target(key, self.top, self._height, last)
        if target is not None:
            self.follow = self.follow and target >= last
            self.top = max(0, min(target, last))
        return target is not None

    def shift(self, lines: int) -> None:
        """So many lines were removed at the beginning: the same lines stay in the window."""
        self.top = max(0, self.top - lines)

    def show(self, line: int) -> None:
        """Scroll so that a line is in the window, a third of it from above."""
        self.follow = False
        self.top = max(0, line - self._height // 3)
