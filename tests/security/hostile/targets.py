"""What the tests prepared outside the pod, for cases that try to reach it; named by environment variables."""

from __future__ import annotations

import os


def text(name: str) -> str:
    return os.environ[f"ESCAPE_{name}"]


def number(name: str) -> int:
    return int(text(name))
