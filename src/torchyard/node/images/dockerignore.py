"""Which files of a build context a `.dockerignore` excludes: the last pattern that matches decides."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DockerIgnore:
    rules: tuple[tuple[bool, re.Pattern[str]], ...]  # (excludes or includes again, pattern)

    @classmethod
    def read(cls, text: str) -> DockerIgnore:
        lines = [line.strip() for line in text.splitlines()]
        patterns = [line for line in lines if line and not line.startswith("#")]
        return cls(tuple((not line.startswith("!"), _pattern(line.lstrip("!").strip())) for line in patterns))

    def excludes(self, path: Path, *, directory: bool = False) -> bool:
        """A directory is not excluded as a whole if a pattern may include some of its files again."""
        if directory and not all(exclude for exclude, _ in self.rules):
            return False
        excluded = False
        for exclude, pattern in self.rules:
            if pattern.fullmatch(path.as_posix()):
                excluded = exclude
        return excluded


def _pattern(line: str) -> re.Pattern[str]:
    """`*` and `?` match within a directory, `**` across them; a directory matches everything in it."""
    line = re.sub(r"(?:\*\*/)+", "**/", re.sub(r"\*{2,}", "**", line))  # a repetition only costs time
    text = ""
    for piece in re.findall(r"\*\*/?|\*|\?|\[[^]]*\]|.", line.strip("/")):
        if piece.startswith("**"):
            text += "(?:.*/)?" if piece.endswith("/") else ".*"
        else:
            text += {"*": "[^/]*", "?": "[^/]"}.get(piece) or (piece if len(piece) > 1 else re.escape(piece))
    return re.compile(f"{text}(?:/.*)?")
