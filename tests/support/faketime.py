"""A wall clock that a test sets forward and back while programs run, with libfaketime. The monotonic clock goes on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

MISSING = "libfaketime is not installed (Debian: apt install libfaketime)"


def library() -> Path | None:
    """The library for programs with threads, or None if it is not installed."""
    if not sys.platform.startswith("linux"):
        return None
    roots = (Path("/usr/lib"), Path("/usr/local/lib"), Path("/usr/lib64"))
    names = [path for root in roots for path in root.glob("**/faketime/libfaketimeMT.so.1")]
    return next(iter(names), None)


class FakeClock:
    """The wall clock of all programs that are started with `environment`."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "faketime"
        self.set("+0")

    def set(self, offset: str) -> None:
        """Set the clock to an offset from the real time, for example `+3h` or `-2d`."""
        temporary = self._file.with_suffix(".new")
        temporary.write_text(offset + "\n")
        temporary.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        path = library()
        assert path is not None, MISSING
        preload = " ".join(filter(None, [str(path), os.environ.get("LD_PRELOAD", "")]))
        return {
            "LD_PRELOAD": preload,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",  # a jump is seen at once
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "NO_FAKE_STAT": "1",
        }
