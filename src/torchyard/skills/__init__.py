"""A skill file for coding agents: what Torchyard does and which command answers which question."""

from __future__ import annotations

from pathlib import Path


def path() -> Path:
    """The folder of the skill, to copy to where an agent looks for skills."""
    return Path(__file__).parent / "torchyard"
