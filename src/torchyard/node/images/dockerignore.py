"""Which files of a build context a `.dockerignore` leaves out: the last pattern that fits decides."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DockerIgnore:
    rules: tuple[tuple[bool, re.Pattern[str]], ...]  # whether it leaves out or takes back in, and what

    @classmethod
    def read(cls, text: str) -> DockerIgnore:
        lines = [line.strip() for line in text.splitlines()]
        kept = [line for line in lines if line and not line.startswith("#")]
        return cls(tuple((not line.startswith("!"), _pattern(line.lstrip("!").strip())) for line in kept))

    def covers(self, path: Path, *, directory: bool = False) -> bool:
        """A directory is looked into whatever it is called if some of its files may be taken back in."""
        if directory and not all(leaves_out for leaves_out, _ in self.rules):
            return False
        left_out = False
        for leaves_out, pattern in self.rules:
            if pattern.fullmatch(path.as_posix()):
                left_out = leaves_out
        return left_out


def _pattern(line: str) -> re.Pattern[str]:
    """`*` and `?` stay within a directory, `**` does not; a directory stands for everything in it."""
    text = ""
    for piece in re.findall(r"\*\*/?|\*|\?|\[[^]]*\]|.", line.strip("/")):
        if piece.startswith("**"):
            text += "(?:.*/)?" if piece.endswith("/") else ".*"
        else:
            text += {"*": "[^/]*", "?": "[^/]"}.get(piece) or (piece if len(piece) > 1 else re.escape(piece))
    return re.compile(f"{text}(?:/.*)?")
