"""`yard doctor`: what this machine offers to pods, and what is missing and why."""

from __future__ import annotations

from torchyard.cli.options import say


def doctor() -> None:
    """Look at the machine and say in plain words what works here, what does not, and why."""
    from torchyard.yard.machine import findings

    for what, works, words in findings():
        say(f"{'✓' if works else '✗'} {what + ':':<24} {words}")
